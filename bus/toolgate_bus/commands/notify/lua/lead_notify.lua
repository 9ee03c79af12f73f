-- Take the lease, or renew it, and read what is kept; ARGV: who, for how many ms
local leader = redis.call('GET', KEYS[1] .. ':leader')
if leader and leader ~= ARGV[1] then return false end
redis.call('SET', KEYS[1] .. ':leader', ARGV[1], 'PX', ARGV[2])
redis.call('SET', KEYS[1] .. ':led', ARGV[1])
return {redis.call('GET', KEYS[1] .. ':memory') or '', redis.call('HVALS', KEYS[1] .. ':outbox')}
