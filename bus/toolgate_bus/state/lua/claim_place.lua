-- Give a call (ARGV[1]) a place in the rows KEYS, behind the calls in them, and return these, row by row. A call that
-- asks again keeps its place. ARGV: call, how long the place is kept (ms), its words, maximum length of a row; with 0 as
-- maximum, the place is only kept for longer.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local most, found = tonumber(ARGV[4]), {}
local function stand(key, number, words)
  redis.call('HSET', key, ARGV[1], string.format('%d %d ', number, now + ARGV[2]) .. words)
  redis.call('PEXPIRE', key, ARGV[2])
end
if most == 0 then
  for _, key in ipairs(KEYS) do
    local number = string.match(redis.call('HGET', key, ARGV[1]) or '', '^(%d+) ')
    if not number then return 0 end
    stand(key, number, ARGV[3])
  end
  return found
end
for _, key in ipairs(KEYS) do
  local row, own, last, many = redis.call('HGETALL', key), nil, 0, 0
  local there = {}
  for at = 1, #row, 2 do
    local number, till, words = string.match(row[at + 1], '^(%d+) (%d+) (.*)$')
    if not number or tonumber(till) < now then
      redis.call('HDEL', key, row[at])
    else
      number, many = tonumber(number), many + 1
      if number > last then last = number end
      if row[at] == ARGV[1] then own = number else there[#there + 1] = {number, row[at], words} end
    end
  end
  if not own and many >= most then return 0 end
  own = own or last + 1
  stand(key, own, ARGV[3])
  table.sort(there, function(a, b) return a[1] < b[1] end)
  for _, one in ipairs(there) do
    if one[1] < own then
      found[#found + 1] = one[2]
      found[#found + 1] = one[3]
    end
  end
end
return found
