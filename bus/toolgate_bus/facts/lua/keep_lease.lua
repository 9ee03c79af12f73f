-- Renew the lease and write, unless another has led since
-- ARGV: who, for how many ms; then for each write its command, the value's name, the number of its words, the words
if redis.call('GET', KEYS[1] .. ':led') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1] .. ':leader', ARGV[1], 'PX', ARGV[2])
local at = 3
while at <= #ARGV do
  local last = at + 2 + tonumber(ARGV[at + 2])
  redis.call(ARGV[at], KEYS[1] .. ':' .. ARGV[at + 1], unpack(ARGV, at + 3, last))
  at = last + 1
end
return 1
