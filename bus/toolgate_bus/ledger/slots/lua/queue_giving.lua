-- Giving slots and taking them back.
local function line_up(r, name)
  local clock = clock_of(name, r.level)
  local tag = math.max(virtual_now(clock), end_of(clock, r.line) or 0)
  local turn, entry = turn_of(name, r.level, r.line), entry_of(r.order, r.id)
  local tags, place, seat, first = tags_of(name, r.level), place_of(name, r.level, r.line)
  if not place then
    redis.call('HDEL', clock, 't' .. r.line)
  elseif r.seat < seat or (r.seat == seat and entry < first) then  -- it was moved before the others
    tag = tonumber(redis.call('ZSCORE', tags, place))
    redis.call('ZREM', tags, place)
    place = nil
  end
  if not place then redis.call('ZADD', tags, text(tag), entry_of(r.order, r.line)) end
  redis.call('ZADD', turn, text(r.seat), entry)
  redis.call('ZADD', ages_of(name, r.level), r.aged, entry)
  redis.call('SADD', p .. ':v:' .. name, r.level)
  redis.call('SADD', p .. ':c:' .. name, r.level)
end
local function leave(r)
  local entry = entry_of(r.order, r.id)
  for _, need in ipairs(r.needs) do
    local tags, ages = tags_of(need.pool, r.level), ages_of(need.pool, r.level)
    local place = place_of(need.pool, r.level, r.line)
    local tag = redis.call('ZSCORE', tags, place)
    redis.call('ZREM', turn_of(need.pool, r.level, r.line), entry)
    redis.call('ZREM', tags, place)
    place = place_of(need.pool, r.level, r.line)
    if place then redis.call('ZADD', tags, tag, place) else note_end(need.pool, r.level, r.line, tonumber(tag)) end
    redis.call('ZREM', ages, entry)
    if redis.call('EXISTS', ages) == 0 then redis.call('SREM', p .. ':v:' .. need.pool, r.level) end
  end
  redis.call('ZREM', p .. ':waiting', r.id)
  redis.call('SREM', p .. ':w:' .. r.owner, r.id)
end
local function give(r)
  local fence = redis.call('HINCRBY', p .. ':count', 'fence', 1)
  for i, need in ipairs(r.needs) do
    need.estimate = estimate_of(need.pool)
    redis.call('HSET', p .. ':r:' .. r.id, 'u' .. i, text(need.estimate))
    observe('waited', need.pool, math.max(0, now - tonumber(r.since)))
    pool(need.pool).has = pool(need.pool).has + redis.call('SADD', p .. ':h:' .. need.pool, r.id)
    if need.alone then set(need.pool, 'alone', r.id) end
    local clock = clock_of(need.pool, r.level)
    local first = tonumber(redis.call('ZRANGE', tags_of(need.pool, r.level), 0, 0, 'WITHSCORES')[2])
    if first > virtual_now(clock) then redis.call('HSET', clock, 'now', text(first)) end
    charge(need.pool, r, need.estimate)
  end
  leave(r)
  r.state, r.fence, r.at = 'given', text(fence), text(now)
  redis.call('HSET', p .. ':r:' .. r.id, 'state', r.state, 'fence', r.fence, 'at', r.at)
  redis.call('ZADD', p .. ':held', text(now + lease), r.id)
  redis.call('SADD', p .. ':g:' .. r.owner, r.id)
end
-- The request to serve next in a pool; nil if none fits, or if one that must not be passed does not fit.
local function find_next(name)
  local one = pool(name)
  if one.alone ~= '' or one.has >= most(name) then return nil end
  local looked = 0
  for id in order(name) do
    if looked >= SCAN then return nil end
    looked = looked + 1
    local r, fits, own = request(id), true, false
    for _, need in ipairs(r.needs) do
      if not has_room(need) then
        fits = false
        if need.pool == name then own = true end
      end
    end
    if fits then return r end
    if own or now - tonumber(r.since) >= tonumber(r.ageing) then return nil end
  end
  return nil
end
-- Serve these pools. A request for several pools may have blocked others, so all its pools are looked at again.
local function serve(names, given)
  local todo, i = {}, 1
  for at, name in ipairs(names) do todo[at] = name end
  while todo[i] ~= nil do
    local r = find_next(todo[i])
    while r ~= nil do
      for _, need in ipairs(r.needs) do
        if need.pool ~= todo[i] then todo[#todo + 1] = need.pool end
      end
      give(r)
      given[#given + 1] = {r.id, r.fence}
      r = find_next(todo[i])
    end
    i = i + 1
  end
  return given
end
-- End a request that has ended or is withdrawn; its pools are added to `touched`, each once.
local function finish(id, touched, seen, ever, why)
  local r = request(id)
  local was = r.state
  if was == nil and not ever then return end
  redis.call('DEL', p .. ':r:' .. id)
  redis.call('HSET', p .. ':r:' .. id, 'state', 'over')
  redis.call('PEXPIRE', p .. ':r:' .. id, keep)
  r.state = 'over'
  if was ~= 'waiting' and was ~= 'given' then return end
  if was == 'waiting' then leave(r) end
  for _, need in ipairs(r.needs) do
    local name = need.pool
    if was == 'waiting' then
      add(why or 'withdrawn', 'all', name, 1)
    else
      pool(name).has = pool(name).has - redis.call('SREM', p .. ':h:' .. name, id)
      if pool(name).alone == id then set(name, 'alone', '') end
      local kept, average = math.max(0, now - tonumber(r.at)), pool(name).average
      observe('held', name, kept)
      observe_share(name, r, kept)
      if why == 'lapsed' then add(why, 'all', name, 1) end
      local took = math.max(MIN_TOOK, kept)
      charge(name, r, took - need.estimate)
      set(name, 'average', average > 0 and average + (took - average) / AVERAGED or took)
    end
    if not seen[name] then
      seen[name] = true
      touched[#touched + 1] = name
    end
  end
  redis.call('ZREM', p .. ':held', id)
  redis.call('SREM', p .. ':g:' .. r.owner, id)
end
local function waiters(name)
  local many = 0
  for _, level in ipairs(redis.call('SMEMBERS', p .. ':v:' .. name)) do
    many = many + redis.call('ZCARD', p .. ':a:' .. name .. ':' .. level)
  end
  return many
end
-- [status, fence, place]
local function look(id)
  local r = request(id)
  if r.state == 'given' then return {'given', r.fence, 0} end
  if r.state ~= 'waiting' then return {'closed', '0', 0} end
  local own, before = nil, 0
  local lines = lines_of(r.needs[1].pool)
  for _, line in ipairs(lines) do
    if line.level == tonumber(r.level) then own = line end
  end
  local lifted = lift(own)
  for _, line in ipairs(lines) do
    local other = lift(line)
    if other > lifted or (other == lifted and line.level > own.level) then
      before = before + redis.call('ZCARD', line.ages)
    end
  end
  return {'waiting', '0', before + count_before(own, r) + 1}
end
