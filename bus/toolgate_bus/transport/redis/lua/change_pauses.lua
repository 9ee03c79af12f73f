-- Change what is paused, all at once, and mark when; gives that mark, or 0 where there would be too many.
-- What is over goes as well, and all of it some time after the last pause is over.
-- ARGV: the mark's field, how many may stand, how long to remember (ms), how many to take away, their ids, then
-- id and value of each to put
local key, mark, most, remember, gone = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local marked = tonumber(redis.call('HGET', key, mark) or '0')
if now <= marked then marked = marked + 1 else marked = now end

for i = 5, 4 + gone do redis.call('HDEL', key, ARGV[i]) end
local standing, last, forever = 0, now, false
local function count(value)
  local ok, pause = pcall(cmsgpack.unpack, value)
  local ends = ok and type(pause) == 'table' and pause['until_ms']
  if type(ends) == 'number' then last = math.max(last, ends) else forever = true end
  standing = standing + 1
  return type(ends) == 'number' and ends <= now
end
local fields = redis.call('HGETALL', key)
for i = 1, #fields, 2 do
  if fields[i] ~= mark and count(fields[i + 1]) then
    redis.call('HDEL', key, fields[i])
    standing = standing - 1
  end
end
for i = 5 + gone, #ARGV, 2 do
  if redis.call('HEXISTS', key, ARGV[i]) == 1 then standing = standing - 1 end
  count(ARGV[i + 1])
end
if standing > most then return 0 end
for i = 5 + gone, #ARGV, 2 do redis.call('HSET', key, ARGV[i], ARGV[i + 1]) end
redis.call('HSET', key, mark, string.format('%.0f', marked))
if forever then redis.call('PERSIST', key) else redis.call('PEXPIRE', key, last - now + remember) end
return marked
