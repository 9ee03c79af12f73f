-- Operations of operators. They change the state; the keeper of the queue then serves by it, and reports.
local what = ARGV[5]
if op == 'limit' then
  set(what, 'ruled', tonumber(ARGV[6]) or '')
  redis.call('SADD', p .. ':pools', what)
  return 1
end
local MOVED = 0.000001
local r = request(what)
if r.state ~= 'waiting' then return op == 'before' and 'gone' or 0 end
-- drop: id, why
if op == 'drop' then
  redis.call('HSET', p .. ':r:' .. what, 'why', ARGV[6])
  redis.call('ZADD', p .. ':waiting', text(now), what)
  return 1
end
local function stand(level, line, seat, aged, order)
  local till = redis.call('ZSCORE', p .. ':waiting', what)
  leave(r)
  r.level, r.line, r.seat, r.aged, r.order = level, line, seat, aged, order
  for _, need in ipairs(r.needs) do line_up(r, need.pool) end
  redis.call('ZADD', p .. ':waiting', till, what)
  redis.call('SADD', p .. ':w:' .. r.owner, what)
end
-- move: id, level
if op == 'move' then
  stand(ARGV[6], r.tenant, tonumber(r.number), r.since, r.number)
  redis.call('HSET', p .. ':r:' .. what, 'level', r.level)
  redis.call('HDEL', p .. ':r:' .. what, 'line', 'seat', 'aged', 'order')
  return 1
end
-- before: id, the id of another; returns the result (`Move` of queue_lines.py)
local goal, theirs, front, is_shared = request(ARGV[6]), {}, nil, false
if goal.state ~= 'waiting' or goal.id == what then return 'absent' end
for _, need in ipairs(goal.needs) do theirs[need.pool] = true end
for _, need in ipairs(r.needs) do
  if theirs[need.pool] then
    is_shared = true
    local turn = turn_of(need.pool, goal.level, goal.line)
    local found = redis.call('ZRANGE', turn, '(' .. text(goal.seat), '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 2, 'WITHSCORES')
    local i = named_in(found[1] or '') == what and 3 or 1
    local seat = tonumber(found[i + 1] or '')
    if seat and (front == nil or seat > front) then front = seat end
  end
end
if not is_shared then return 'apart' end
local seat = front and (front + goal.seat) / 2 or goal.seat - 1
if not (seat < goal.seat and (front == nil or front < seat)) then return 'full' end
stand(goal.level, goal.line, seat, text(math.min(tonumber(r.since), tonumber(goal.aged) - MOVED)), goal.order)
redis.call('HSET', p .. ':r:' .. what, 'level', r.level, 'line', r.line, 'seat', text(r.seat), 'aged', r.aged,
  'order', r.order)
return 'moved'
