-- What an operator asks for. It changes how things stand; whoever keeps the queue serves by it, and tells.
local what = ARGV[5]
if op == 'limit' then
  set(what, 'ruled', tonumber(ARGV[6]) or '')
  redis.call('SADD', p .. ':pools', what)
  return 1
end
local r = request(what)
if r.state ~= 'waiting' then return 0 end
-- drop: id, why
if op == 'drop' then
  redis.call('HSET', p .. ':r:' .. what, 'why', ARGV[6])
  redis.call('ZADD', p .. ':waiting', text(now), what)
  return 1
end
-- move: id, level
local till = redis.call('ZSCORE', p .. ':waiting', what)
leave(r)
r.level = ARGV[6]
redis.call('HSET', p .. ':r:' .. what, 'level', r.level)
for _, need in ipairs(r.needs) do line_up(r, need.pool) end
redis.call('ZADD', p .. ':waiting', till, what)
redis.call('SADD', p .. ':w:' .. r.owner, what)
return 1
