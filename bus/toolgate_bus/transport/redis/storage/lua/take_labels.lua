-- Take labels from a session, for an operator. Returns the fields that it bore until now.
-- A name without a value means all its values; without a name, all labels are meant.
-- ARGV: expiry (ms), the operator's name, then the field, or `NAME=`, or nothing
local key, by, meant = KEYS[1], ARGV[2], ARGV[3] or ''
local t = redis.call('TIME')
local now, taken = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000)), {}
local fields = redis.call('HGETALL', key)
for i = 1, #fields, 2 do
  local field, count = fields[i], tonumber(string.match(fields[i + 1], '^%d+') or '0')
  local whole = string.sub(meant, -1) == '='
  local fits = meant == '' or field == meant or (whole and string.sub(field, 1, #meant) == meant)
  if fits and count % 2 == 1 and string.sub(field, 1, 1) ~= '!' then
    redis.call('HSET', key, field, string.format('%.0f', count + 1) .. ' ' .. now .. ' ' .. by)
    taken[#taken + 1] = field
  end
end
if #taken > 0 then redis.call('PEXPIRE', key, ARGV[1]) end
return taken
