-- Change pauses and stops in one step, and mark the time. Returns that mark, or 0 if there would be too many of the kind
-- that is added: pauses and stops are counted apart.
-- Ended ones are removed as well, and the whole hash expires some time after the last of them has ended.
-- ARGV: the mark's field, maximum number, how long to remember (ms), number of ids to remove, these ids, then id and value
-- of each one to add
local key, mark, most, remember, gone = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local marked = tonumber(redis.call('HGET', key, mark) or '0')
if now <= marked then marked = marked + 1 else marked = now end

for i = 5, 4 + gone do redis.call('HDEL', key, ARGV[i]) end
local standing, last, forever = {}, now, false
local function read(value)
  local ok, one = pcall(cmsgpack.unpack, value)
  if not ok or type(one) ~= 'table' then one = {} end
  local ends = type(one['until_ms']) == 'number' and one['until_ms'] or nil
  if ends then last = math.max(last, ends) else forever = true end
  return ends, one['stop'] == true
end
local fields = redis.call('HGETALL', key)
for i = 1, #fields, 2 do
  if fields[i] ~= mark then
    local ends, is_stop = read(fields[i + 1])
    if ends and ends <= now then
      redis.call('HDEL', key, fields[i])
    else
      standing[fields[i]] = is_stop
    end
  end
end
for i = 5 + gone, #ARGV, 2 do
  local _, is_stop = read(ARGV[i + 1])
  standing[ARGV[i]] = is_stop
  local alike = 0
  for _, kind in pairs(standing) do
    if kind == is_stop then alike = alike + 1 end
  end
  if alike > most then return 0 end
end
for i = 5 + gone, #ARGV, 2 do redis.call('HSET', key, ARGV[i], ARGV[i + 1]) end
redis.call('HSET', key, mark, string.format('%.0f', marked))
if forever then redis.call('PERSIST', key) else redis.call('PEXPIRE', key, last - now + remember) end
return marked
