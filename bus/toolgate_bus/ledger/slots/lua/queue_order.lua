-- The order of service: tenants by tag, each with its oldest request first; levels as waiting has lifted them.
local function clock_of(name, level) return p .. ':e:' .. name .. ':' .. level end
local function tags_of(name, level) return p .. ':t:' .. name .. ':' .. level end
local function ages_of(name, level) return p .. ':a:' .. name .. ':' .. level end
local function turn_of(name, level, tenant) return p .. ':q:' .. level .. ':' .. #name .. ':' .. name .. ':' .. tenant end
local function virtual_now(clock) return number(redis.call('HGET', clock, 'now')) end
local function end_of(clock, tenant) return tonumber(redis.call('HGET', clock, 't' .. tenant) or '') end
-- The place of a tenant in the line: its entry; nil if it waits for nothing.
local function place_of(name, level, tenant)
  local oldest = redis.call('ZRANGE', turn_of(name, level, tenant), 0, 0, 'WITHSCORES')
  if oldest[1] == nil then return nil end
  return string.sub(oldest[1], 1, 16) .. tenant, tonumber(oldest[2]), oldest[1]
end
local function note_end(name, level, tenant, till)
  local clock = clock_of(name, level)
  redis.call('SADD', p .. ':c:' .. name, level)
  if till > virtual_now(clock) then
    redis.call('HSET', clock, 't' .. tenant, text(till))
  else
    redis.call('HDEL', clock, 't' .. tenant)
  end
end
local function charge(name, r, seconds)
  local place, work = place_of(name, r.level, r.tenant), seconds / tonumber(r.weight)
  if place then
    local tags = tags_of(name, r.level)
    redis.call('ZADD', tags, text(tonumber(redis.call('ZSCORE', tags, place)) + work), place)
  else
    local clock = clock_of(name, r.level)
    note_end(name, r.level, r.tenant, (end_of(clock, r.tenant) or virtual_now(clock)) + work)
  end
end

local function lines_of(name)
  local found = {}
  for _, level in ipairs(redis.call('SMEMBERS', p .. ':v:' .. name)) do
    found[#found + 1] = {name = name, level = tonumber(level), text = level, tags = tags_of(name, level),
      ages = ages_of(name, level), t = 0, a = 0, walks = {}, gone = {}}
  end
  return found
end
local function oldest_of(line)
  while true do
    local entry = redis.call('ZRANGE', line.ages, line.a, line.a)[1]
    if entry == nil or not line.gone[entry] then return entry end
    line.a = line.a + 1
  end
end
local function lift(line)
  local entry = oldest_of(line)
  if entry == nil then return nil end
  local r = request(named_in(entry))
  return line.level + math.max(0, now - tonumber(r.aged)) / tonumber(r.ageing)
end
-- A tenant from which this walk has taken requests: its tag since then, and its next entry (nil: none).
local function walk_of(line, tenant)
  if line.walks[tenant] == nil then
    local turn = turn_of(line.name, line.text, tenant)
    local first = redis.call('ZRANGE', turn, 0, 0)[1]
    local tag = redis.call('ZSCORE', line.tags, string.sub(first, 1, 16) .. tenant)
    line.walks[tenant] = {turn = turn, at = 0, next = first, tag = tonumber(tag)}
  end
  return line.walks[tenant]
end
-- The next entry of the tenant with the smallest tag.
local function next_of(line)
  local best, smallest
  for _, walk in pairs(line.walks) do
    if walk.next and (best == nil or walk.tag < smallest or (walk.tag == smallest and walk.next < best)) then
      best, smallest = walk.next, walk.tag
    end
  end
  while true do
    local found = redis.call('ZRANGE', line.tags, line.t, line.t, 'WITHSCORES')
    if found[1] == nil then return best end
    local tenant, tag = named_in(found[1]), tonumber(found[2])
    if line.walks[tenant] == nil then
      if best ~= nil and smallest < tag then return best end
      local oldest = redis.call('ZRANGE', turn_of(line.name, line.text, tenant), 0, 0)[1]
      if best ~= nil and smallest == tag and best < oldest then return best end
      return oldest
    end
    line.t = line.t + 1
  end
end
local function pass(line, entry)
  local r = request(named_in(entry))
  local walk, payer = walk_of(line, r.line), nil
  line.gone[entry] = true
  while walk.next and line.gone[walk.next] do
    walk.at = walk.at + 1
    walk.next = redis.call('ZRANGE', walk.turn, walk.at, walk.at)[1]
  end
  if r.line == r.tenant then payer = walk
  elseif place_of(line.name, line.text, r.tenant) then payer = walk_of(line, r.tenant) end
  if payer then payer.tag = payer.tag + estimate_of(line.name) / tonumber(r.weight) end
end
-- An iterator over the requests that wait for a pool, the next one first.
local function order(name)
  local lines = lines_of(name)
  return function()
    local best, highest
    for _, line in ipairs(lines) do
      local lifted = lift(line)
      if lifted ~= nil and (best == nil or lifted > highest or (lifted == highest and line.level > best.level)) then
        best, highest = line, lifted
      end
    end
    if best == nil then return nil end
    local by_age = false
    for _, line in ipairs(lines) do
      if lift(line) ~= nil and line.level > best.level and highest > line.level then by_age = true end
    end
    local entry = by_age and oldest_of(best) or next_of(best)
    pass(best, entry)
    return named_in(entry)
  end
end
-- The number served before a request in its line: exact up to LOOK tenants; beyond that, one of each tenant.
local function count_before(line, r)
  local entry, own = entry_of(r.order, r.id), place_of(line.name, line.text, r.line)
  local before = redis.call('ZRANK', turn_of(line.name, line.text, r.line), entry)
  local estimate, is_first = estimate_of(line.name), before == 0
  local tag = tonumber(redis.call('ZSCORE', line.tags, own)) + before * estimate / tonumber(r.weight)
  local earlier = redis.call('ZRANGE', line.tags, '-inf', '(' .. text(tag), 'BYSCORE', 'LIMIT', 0, LOOK + 1, 'WITHSCORES')
  local looked = 0
  for i = 1, #earlier, 2 do
    if earlier[i] ~= own and looked < LOOK then
      local tenant = named_in(earlier[i])
      local turn = turn_of(line.name, line.text, tenant)
      local share = tonumber(request(named_in(redis.call('ZRANGE', turn, 0, 0)[1])).weight)
      before = before + math.min(redis.call('ZCARD', turn), math.ceil((tag - tonumber(earlier[i + 1])) * share / estimate))
      looked = looked + 1
    end
  end
  -- One of each further tenant; the request's own tenant is not among them.
  if is_first then return before + redis.call('ZRANK', line.tags, own) - looked end
  return before + redis.call('ZCOUNT', line.tags, '-inf', '(' .. text(tag)) - 1 - looked
end
