-- The rules of slots, which the server runs atomically (see `queue_rules.py` for the rules themselves).
--
-- Keys of one namespace, all in one slot (`p` is their prefix):
--     p:r:<request>            hash: state (waiting, given), owner, tenant, weight, level, ageing, number,
--                              since, fence, at, n, and for each need i: pi, ai (alone), ti (tag); or state: over
--     p:p:<pool>               hash: limit, ruled, alone, average
--     p:h:<pool>               set of requests that have a slot
--     p:c:<pool>               set of levels that have a virtual time
--     p:e:<pool>:<level>       hash: t<tenant> -> where its work ends in virtual time; now: that time
--     p:v:<pool>               set of levels at which somebody waits
--     p:t:<pool>:<level>       sorted set of who waits, by tag
--     p:a:<pool>:<level>       sorted set of who waits, by time
--     p:held                   sorted set of requests that have slots, by the end of their lease
--     p:waiting                sorted set of requests that wait, by the end of their wait
--     p:owners                 sorted set of owners, by when they were last known to live
--     p:w:<owner>, p:g:<owner> sets of what waits, what has slots
--     p:pools                  set of pools
--     p:count                  hash: fence, arrivals
--     p:sums                   hash: what became of requests, by pool as it is configured (`queue_sums.py`):
--                              <what>:<part>:<pool>[:<tenant>] -> how many, or microseconds
--     p:whose:<pool>           set of tenants that have sums of their own
-- KEYS[1]: prefix. ARGV: op, seconds of a lease, now (empty: the server's clock), milliseconds for which an end
-- is remembered, then what the op needs.
local p, op, lease, keep = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4])
local now = tonumber(ARGV[3])
if now == nil then
  local t = redis.call('TIME')
  now = tonumber(t[1]) + tonumber(t[2]) / 1000000
end
local SCAN, AVERAGED, MAX_WAITERS, UNSEEN = 64, 16, 100000, 3

local function text(value) return string.format('%.17g', value) end
local function fields(key)
  local flat, map = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do map[flat[i]] = flat[i + 1] end
  return map
end
local function number(value) return tonumber(value or '0') or 0 end

local requests = {}
local function request(id)
  if requests[id] == nil then
    local r = fields(p .. ':r:' .. id)
    r.id, r.needs = id, {}
    for i = 1, number(r.n) do
      r.needs[i] = {pool = r['p' .. i], alone = r['a' .. i] == '1', tag = tonumber(r['t' .. i])}
    end
    requests[id] = r
  end
  return requests[id]
end
local pools = {}
local function pool(name)
  if pools[name] == nil then
    local one = fields(p .. ':p:' .. name)
    one.limit, one.average = number(one.limit), number(one.average)
    one.ruled, one.alone = tonumber(one.ruled or ''), one.alone or ''
    one.has = redis.call('SCARD', p .. ':h:' .. name)
    pools[name] = one
  end
  return pools[name]
end
local function set(name, field, value)
  redis.call('HSET', p .. ':p:' .. name, field, type(value) == 'number' and text(value) or value)
  pool(name)[field] = value
end
local function most(name)
  local one = pool(name)
  if one.ruled == nil then return one.limit end
  return math.min(one.ruled, one.limit)
end
local function has_room(need)
  local one = pool(need.pool)
  if one.alone ~= '' or one.has >= most(need.pool) then return false end
  return not (need.alone and one.has > 0)
end
local function member(r) return string.format('%015d:', number(r.number)) .. r.id end
local function id_of(entry) return string.sub(entry, 17) end

-- ---------------------------------------------------------------------- what is counted

local BOUNDS = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
local MAX_TENANTS, OTHER = 100, 'other'
local function as_configured(name) return string.match(name, '^[^/]*') end
local function add(what, part, name, amount)
  redis.call('HINCRBY', p .. ':sums', what .. ':' .. part .. ':' .. as_configured(name), string.format('%.0f', amount))
end
local function observe(what, name, seconds)
  local bucket = 1
  while BOUNDS[bucket] ~= nil and seconds > BOUNDS[bucket] do bucket = bucket + 1 end
  add(what, bucket, name, 1)
  add(what, 'sum', name, seconds * 1000000)
end
local function observe_share(name, r, seconds)
  local tenants, whose = p .. ':whose:' .. as_configured(name), r.tenant
  if redis.call('SISMEMBER', tenants, whose) == 0 then
    if redis.call('SCARD', tenants) < MAX_TENANTS then redis.call('SADD', tenants, whose) else whose = OTHER end
  end
  redis.call('HINCRBY', p .. ':sums', 'used:sum:' .. as_configured(name) .. ':' .. whose, string.format('%.0f', seconds * 1000000))
  redis.call('HSET', p .. ':sums', 'weight:now:' .. as_configured(name) .. ':' .. whose, r.weight)
end

local function clock_of(name, level) return p .. ':e:' .. name .. ':' .. level end
local function virtual_now(clock) return number(redis.call('HGET', clock, 'now')) end
local function end_of(clock, tenant) return tonumber(redis.call('HGET', clock, 't' .. tenant) or '') end
local function charge(name, r, work)
  local clock = clock_of(name, r.level)
  local at = virtual_now(clock)
  local till = (end_of(clock, r.tenant) or at) + work / tonumber(r.weight)
  redis.call('SADD', p .. ':c:' .. name, r.level)
  if till > at then
    redis.call('HSET', clock, 't' .. r.tenant, text(till))
  else
    redis.call('HDEL', clock, 't' .. r.tenant)
  end
end

-- ---------------------------------------------------------------------- the order

local function levels_of(name)
  local found = {}
  for _, level in ipairs(redis.call('SMEMBERS', p .. ':v:' .. name)) do
    found[#found + 1] = {level = tonumber(level), tags = p .. ':t:' .. name .. ':' .. level,
      ages = p .. ':a:' .. name .. ':' .. level, t = 0, a = 0, gone = {}}
  end
  return found
end
-- The next of a sorted set that is not gone yet; nil at its end.
local function head(one, key, at)
  while true do
    local entry = redis.call('ZRANGE', key, one[at], one[at])[1]
    if entry == nil or not one.gone[entry] then return entry end
    one[at] = one[at] + 1
  end
end
local function lift(one)
  local entry = head(one, one.ages, 'a')
  if entry == nil then return nil end
  local r = request(id_of(entry))
  return one.level + math.max(0, now - tonumber(r.since)) / tonumber(r.ageing)
end
-- An iterator over who waits for a pool, the next first.
local function order(name)
  local levels = levels_of(name)
  return function()
    local best, highest
    for _, one in ipairs(levels) do
      local lifted = lift(one)
      if lifted ~= nil and (best == nil or lifted > highest or (lifted == highest and one.level > best.level)) then
        best, highest = one, lifted
      end
    end
    if best == nil then return nil end
    local by_age = false
    for _, one in ipairs(levels) do
      if lift(one) ~= nil and one.level > best.level and highest > one.level then by_age = true end
    end
    local entry = by_age and head(best, best.ages, 'a') or head(best, best.tags, 't')
    best.gone[entry] = true
    return id_of(entry)
  end
end

-- ---------------------------------------------------------------------- giving and taking

local function leave(r)
  for _, need in ipairs(r.needs) do
    local level = need.pool .. ':' .. r.level
    redis.call('ZREM', p .. ':t:' .. level, member(r))
    redis.call('ZREM', p .. ':a:' .. level, member(r))
    if redis.call('EXISTS', p .. ':a:' .. level) == 0 then redis.call('SREM', p .. ':v:' .. need.pool, r.level) end
  end
  redis.call('ZREM', p .. ':waiting', r.id)
  redis.call('SREM', p .. ':w:' .. r.owner, r.id)
end
local function give(r)
  leave(r)
  local fence = redis.call('HINCRBY', p .. ':count', 'fence', 1)
  for _, need in ipairs(r.needs) do
    observe('waited', need.pool, math.max(0, now - tonumber(r.since)))
    pool(need.pool).has = pool(need.pool).has + redis.call('SADD', p .. ':h:' .. need.pool, r.id)
    if need.alone then set(need.pool, 'alone', r.id) end
    local clock, first = clock_of(need.pool, r.level), redis.call('ZRANGE', p .. ':t:' .. need.pool .. ':' .. r.level, 0, 0, 'WITHSCORES')[2]
    local at = math.min(tonumber(first or '') or need.tag, need.tag)
    redis.call('SADD', p .. ':c:' .. need.pool, r.level)
    if at > virtual_now(clock) then redis.call('HSET', clock, 'now', text(at)) end
  end
  r.state, r.fence, r.at = 'given', text(fence), text(now)
  redis.call('HSET', p .. ':r:' .. r.id, 'state', r.state, 'fence', r.fence, 'at', r.at)
  redis.call('ZADD', p .. ':held', text(now + lease), r.id)
  redis.call('SADD', p .. ':g:' .. r.owner, r.id)
end
-- Who is served next in a pool; nil where nobody fits, or somebody who must not be passed does not.
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
local function serve(names, given)
  for _, name in ipairs(names) do
    local r = find_next(name)
    while r ~= nil do
      give(r)
      given[#given + 1] = {r.id, r.fence}
      r = find_next(name)
    end
  end
  return given
end
-- It runs no longer, or wants nothing any more; its pools are added to `touched`, each once.
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
      charge(name, r, -1)
      add(why or 'withdrawn', 'all', name, 1)
    else
      pool(name).has = pool(name).has - redis.call('SREM', p .. ':h:' .. name, id)
      if pool(name).alone == id then set(name, 'alone', '') end
      local took, average = math.max(0, now - tonumber(r.at)), pool(name).average
      observe('held', name, took)
      observe_share(name, r, took)
      if why == 'lapsed' then add(why, 'all', name, 1) end
      if average > 0 then
        charge(name, r, took / average - 1)
        set(name, 'average', average + (took - average) / AVERAGED)
      else
        set(name, 'average', took)
      end
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
  local name, own, lifted, before = r.needs[1].pool, tonumber(r.level), nil, 0
  local levels = levels_of(name)
  for _, one in ipairs(levels) do
    if one.level == own then lifted = lift(one) end
  end
  for _, one in ipairs(levels) do
    local other = lift(one)
    if other > lifted or (other == lifted and one.level > own) then before = before + redis.call('ZCARD', one.ages) end
  end
  return {'waiting', '0', before + redis.call('ZRANK', p .. ':t:' .. name .. ':' .. r.level, member(r)) + 1}
end

-- ---------------------------------------------------------------------- what is asked for

-- ask: id, owner, tenant, weight, level, ageing, wait, then for each need: pool, limit, alone
if op == 'ask' then
  local id, first = ARGV[5], 12
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
  local words = {'state', r.state, 'owner', r.owner, 'tenant', r.tenant, 'weight', r.weight, 'level', r.level,
    'ageing', r.ageing, 'number', r.number, 'since', r.since, 'n', r.n}
  for i, name in ipairs(names) do
    local clock = clock_of(name, r.level)
    local tag = math.max(virtual_now(clock), end_of(clock, r.tenant) or 0)
    local alone = ARGV[first + 3 * (i - 1) + 2] == '1'
    r.needs[i] = {pool = name, alone = alone, tag = tag}
    for _, word in ipairs({'p' .. i, name, 'a' .. i, alone and '1' or '0', 't' .. i, text(tag)}) do
      words[#words + 1] = word
    end
    redis.call('HSET', clock, 't' .. r.tenant, text(tag))
    charge(name, r, 1)
    redis.call('SADD', p .. ':v:' .. name, r.level)
    redis.call('ZADD', p .. ':t:' .. name .. ':' .. r.level, text(tag), member(r))
    redis.call('ZADD', p .. ':a:' .. name .. ':' .. r.level, r.since, member(r))
  end
  redis.call('HSET', p .. ':r:' .. id, unpack(words))
  redis.call('ZADD', p .. ':waiting', text(now + tonumber(ARGV[11])), id)
  redis.call('ZADD', p .. ':owners', text(now), r.owner)
  redis.call('SADD', p .. ':w:' .. r.owner, id)
  serve(names, {})
  return look(id)
end
if op == 'look' then return look(ARGV[5]) end
-- given: gives [id, fence] of all that have slots
if op == 'given' then
  local all = {}
  for i, id in ipairs(redis.call('ZRANGE', p .. ':held', 0, -1)) do all[i] = {id, request(id).fence} end
  return all
end
-- end (of what was asked for), withdraw (also before it is): ids…; gives [id, fence] of each to whom
-- something was given
if op == 'end' or op == 'withdraw' then
  local touched, seen = {}, {}
  for i = 5, #ARGV do finish(ARGV[i], touched, seen, op == 'withdraw') end
  return serve(touched, {})
end
-- limit: pool, most (empty: as configured)
if op == 'limit' then
  set(ARGV[5], 'ruled', tonumber(ARGV[6]) or '')
  pool(ARGV[5]).ruled = tonumber(ARGV[6])
  redis.call('SADD', p .. ':pools', ARGV[5])
  return serve({ARGV[5]}, {})
end
-- renew, lapse: owners that live
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
-- lapse gives [[id, fence] of each to whom something was given, [id, pools…] of each whose wait was over]
local touched, seen, gone, expired = {}, {}, {}, {}
local late = redis.call('ZRANGE', p .. ':waiting', '-inf', text(now), 'BYSCORE')
for i, id in ipairs(late) do
  expired[i] = {id}
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
  if pool(name).has == 0 and pool(name).ruled == nil and redis.call('EXISTS', p .. ':v:' .. name, p .. ':c:' .. name) == 0 then
    redis.call('DEL', p .. ':p:' .. name)
    redis.call('SREM', p .. ':pools', name)
  end
end
return {given, expired}
