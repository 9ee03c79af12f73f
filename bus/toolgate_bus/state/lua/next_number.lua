-- Return the number of a caller (KEYS[2]) under a counter (KEYS[1]), the same each time; ARGV: how long it is kept, in ms
local had = redis.call('GET', KEYS[2])
if had then return tonumber(had) end
local turn = redis.call('INCR', KEYS[1]) - 1
redis.call('SET', KEYS[2], turn, 'PX', ARGV[1])
return turn
