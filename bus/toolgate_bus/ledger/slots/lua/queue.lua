-- Operations of requests, limits and owners.
-- ask: id, owner, tenant, weight, level, ageing, wait, about, then for each need: pool, limit, alone
if op == 'ask' then
  local id, first = ARGV[5], 13
  local r = request(id)
  if r.state ~= nil then return look(id) end
  local names = {}
  for i = first, #ARGV, 3 do
    names[#names + 1] = ARGV[i]
    set(ARGV[i], 'limit', tonumber(ARGV[i + 1]))
    redis.call('SADD', p .. ':pools', ARGV[i])
  end
  for _, name in ipairs(names) do
    if waiters(name) >= MAX_WAITERS then return {'closed', '0', 0} end
  end
  r.number = redis.call('HINCRBY', p .. ':count', 'arrivals', 1)
  r.state, r.owner, r.tenant, r.weight, r.level, r.ageing = 'waiting', ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
  r.since, r.n = text(now), #names
  r.line, r.seat, r.aged, r.order = r.tenant, r.number, r.since, r.number
  local words = {'state', r.state, 'owner', r.owner, 'tenant', r.tenant, 'weight', r.weight, 'level', r.level,
    'ageing', r.ageing, 'number', r.number, 'since', r.since, 'n', r.n, 'about', ARGV[12]}
  for i, name in ipairs(names) do
    local alone = ARGV[first + 3 * (i - 1) + 2] == '1'
    r.needs[i] = {pool = name, alone = alone}
    for _, word in ipairs({'p' .. i, name, 'a' .. i, alone and '1' or '0'}) do words[#words + 1] = word end
    line_up(r, name)
  end
  redis.call('HSET', p .. ':r:' .. id, unpack(words))
  redis.call('ZADD', p .. ':waiting', text(now + tonumber(ARGV[11])), id)
  redis.call('ZADD', p .. ':owners', text(now), r.owner)
  redis.call('SADD', p .. ':w:' .. r.owner, id)
  serve(names, {})
  return look(id)
end
if op == 'look' then return look(ARGV[5]) end
-- given: returns [id, fence] of all requests that have slots
if op == 'given' then
  local all = {}
  for i, id in ipairs(redis.call('ZRANGE', p .. ':held', 0, -1)) do all[i] = {id, request(id).fence} end
  return all
end
-- end (of a known request), withdraw (even before it asks): ids…; returns [id, fence] of each request that got its slots
if op == 'end' or op == 'withdraw' then
  local touched, seen = {}, {}
  for i = 5, #ARGV do finish(ARGV[i], touched, seen, op == 'withdraw') end
  return serve(touched, {})
end
-- limit: pool, limit (empty: as configured); for a pool with keys, the limit of each key
if op == 'limit' then
  set(ARGV[5], 'ruled', tonumber(ARGV[6]) or '')
  pool(ARGV[5]).ruled = tonumber(ARGV[6])
  redis.call('SADD', p .. ':pools', ARGV[5])
  local keys, names = {}, {ARGV[5]}
  for _, name in ipairs(redis.call('SMEMBERS', p .. ':pools')) do
    if name ~= ARGV[5] and as_configured(name) == ARGV[5] then keys[#keys + 1] = name end
  end
  table.sort(keys)
  for _, name in ipairs(keys) do names[#names + 1] = name end
  return serve(names, {})
end
-- renew, lapse: living owners
local living = {}
for i = 5, #ARGV do
  living[ARGV[i]] = true
  redis.call('ZADD', p .. ':owners', 'XX', text(now), ARGV[i])
end
if op == 'renew' then
  for owner in pairs(living) do
    for _, id in ipairs(redis.call('SMEMBERS', p .. ':g:' .. owner)) do
      redis.call('ZADD', p .. ':held', text(now + lease), id)
    end
  end
  return {}
end
-- lapse returns [[id, fence] of each request that got its slots, [id, why, pools…] of each whose wait was over]
local touched, seen, gone, expired = {}, {}, {}, {}
local late = redis.call('ZRANGE', p .. ':waiting', '-inf', text(now), 'BYSCORE')
for i, id in ipairs(late) do
  expired[i] = {id, request(id).why or ''}
  for _, need in ipairs(request(id).needs) do expired[i][#expired[i] + 1] = need.pool end
end
for _, owner in ipairs(redis.call('ZRANGE', p .. ':owners', '-inf', text(now - UNSEEN), 'BYSCORE')) do
  if not living[owner] then
    for _, id in ipairs(redis.call('SMEMBERS', p .. ':w:' .. owner)) do gone[#gone + 1] = id end
    for _, id in ipairs(redis.call('SMEMBERS', p .. ':g:' .. owner)) do
      if tonumber(redis.call('ZSCORE', p .. ':held', id)) <= now then gone[#gone + 1] = id end
    end
    if redis.call('EXISTS', p .. ':w:' .. owner, p .. ':g:' .. owner) == 0 then redis.call('ZREM', p .. ':owners', owner) end
  end
end
table.sort(gone)
for _, id in ipairs(late) do finish(id, touched, seen, true, 'expired') end
for _, id in ipairs(gone) do
  if request(id).state == 'given' then
    finish(id, touched, seen, true, 'lapsed')
  elseif request(id).state ~= 'over' then
    finish(id, touched, seen, true)
  end
end
local given = serve(touched, {})
local names = redis.call('SMEMBERS', p .. ':pools')
table.sort(names)
serve(names, given)
for _, name in ipairs(names) do
  for _, level in ipairs(redis.call('SMEMBERS', p .. ':c:' .. name)) do
    local clock = clock_of(name, level)
    local at, flat, busy = virtual_now(clock), redis.call('HGETALL', clock), false
    for i = 1, #flat, 2 do
      if flat[i] ~= 'now' then
        if tonumber(flat[i + 1]) <= at then redis.call('HDEL', clock, flat[i]) else busy = true end
      end
    end
    if not busy and redis.call('SISMEMBER', p .. ':v:' .. name, level) == 0 then
      redis.call('DEL', clock)
      redis.call('SREM', p .. ':c:' .. name, level)
    end
  end
  if pool(name).has == 0 and (pool(name).ruled or pool(name).adapted) == nil and redis.call('EXISTS', p .. ':v:' .. name, p .. ':c:' .. name) == 0 then
    redis.call('DEL', p .. ':p:' .. name)
    redis.call('SREM', p .. ':pools', name)
  end
end
return {given, expired}
