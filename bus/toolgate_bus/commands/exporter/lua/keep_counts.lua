-- Renew the lease and write what was counted, unless another has led since; ARGV: who, for how many ms, the counts
if redis.call('GET', KEYS[1] .. ':led') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1] .. ':leader', ARGV[1], 'PX', ARGV[2])
if ARGV[3] then redis.call('SET', KEYS[1] .. ':state', ARGV[3]) end
return 1
