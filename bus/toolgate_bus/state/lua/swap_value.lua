-- Write a value unless somebody has changed it since; ARGV: the value before (empty: none), the new value
local is = redis.call('GET', KEYS[1])
if is == ARGV[2] then return 1 end
if (is or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
