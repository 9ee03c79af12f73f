-- Join marks of a session's labels with those that are stored: of each label the higher count stays.
-- Beyond the maximum a new label is not kept, and the field '*' says so.
-- ARGV: expiry (ms), maximum number of fields, then field and mark of each label
local key, most = KEYS[1], tonumber(ARGV[2])
local function count(mark) return tonumber(string.match(mark or '', '^%d+') or '0') end
for i = 3, #ARGV, 2 do
  local field, mark = ARGV[i], ARGV[i + 1]
  local stored = redis.call('HGET', key, field)
  if count(mark) > count(stored) then
    if stored or field == '*' or redis.call('HLEN', key) < most then
      redis.call('HSET', key, field, mark)
    else
      local full = count(redis.call('HGET', key, '*'))
      if full % 2 == 0 then redis.call('HSET', key, '*', string.format('%.0f', full + 1)) end
    end
  end
end
redis.call('PEXPIRE', key, ARGV[1])
return redis.status_reply('OK')
