-- Take the lease, or renew it; ARGV: who, for how many ms
local leader = redis.call('GET', KEYS[1] .. ':leader')
if leader and leader ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1] .. ':leader', ARGV[1], 'PX', ARGV[2])
redis.call('SET', KEYS[1] .. ':led', ARGV[1])
return 1
