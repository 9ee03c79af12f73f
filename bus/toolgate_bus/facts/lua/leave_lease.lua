-- Let another lead; ARGV: who
if redis.call('GET', KEYS[1] .. ':leader') == ARGV[1] then redis.call('DEL', KEYS[1] .. ':leader') end
return 1
