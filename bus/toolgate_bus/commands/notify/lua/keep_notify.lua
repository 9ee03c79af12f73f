-- Renew the lease and write down what changed, unless another has led since.
-- ARGV: who, for how many ms, the memory ('' leaves it), how many ids to take out, these, then ids with what to put in
if redis.call('GET', KEYS[1] .. ':led') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1] .. ':leader', ARGV[1], 'PX', ARGV[2])
if ARGV[3] ~= '' then redis.call('SET', KEYS[1] .. ':memory', ARGV[3]) end
local last = 4 + tonumber(ARGV[4])
for at = 5, last do redis.call('HDEL', KEYS[1] .. ':outbox', ARGV[at]) end
for at = last + 1, #ARGV, 2 do redis.call('HSET', KEYS[1] .. ':outbox', ARGV[at], ARGV[at + 1]) end
return 1
