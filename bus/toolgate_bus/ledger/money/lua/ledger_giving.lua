
-- `executing`, `renew`, `release`, `orphan`, `settle` and `claim`
-- arguments: decision, tombstone_ms, keep_ms, the one that reports (or empty), then the operation's own, the writer
local by = ARGV[5]
local r = known(by)
local where = places(r)
local amount, amounts = number(r.amount), held_by(r)
-- The reservation, for the memory of this change: if a failover forgets both, the reservation is made again first,
-- whoever made it.
local function reserved()
  if counted == '' or r.phase == nil or #where == 0 then return '' end
  local found = {r.phase, r.name or '', r.amount or '0', r.owner or ''}
  for i, key in ipairs(where) do
    local one = account(key)
    local left = math.max(0, math.floor((number(one.kept) - now) * 8 / 9)) -- as `commit` keeps it an eighth longer
    if not one.kept then -- of an older release
      left = redis.pcall('PTTL', p .. ':a:' .. key) -- an older user may not
      if type(left) ~= 'number' then left = 0 end
    end
    found[4 + i] = {key, one.limit or '-1', left, one.unit or '', whole(amounts[key])}
  end
  return cmsgpack.pack(found)
end

local function close(state, keep)
  local owner = r.state == nil and by or r.owner
  if state == 'settled' then -- the first write, as it may fail
    mark_settled(id, r.phase, owner)
    keep = whole_ms
  end
  redis.call('ZREM', open, id)
  redis.call('HSET', rkey, 'state', state, 'owner', owner or '')
  redis.call('PEXPIRE', rkey, keep)
end
local function stray(outcome)
  redis.call('HINCRBY', p .. ':astray', outcome, 1)
  return {outcome, '0', '0', counted, ''}
end

if op == 'claim' then
  -- from its owner to ARGV[6]
  if r.state == nil or ((r.owner or '') ~= by and r.owner ~= ARGV[6]) then return 0 end
  if redis.call('EXISTS', rkey) == 0 then return 0 end -- settled a while ago
  redis.call('HSET', rkey, 'owner', ARGV[6])
  return 1
end
if is_foreign(r, by) then return stray('foreign') end

if op == 'executing' then
  if r.state == 'reserved' then redis.call('HSET', rkey, 'exec', '1') end
  return {'done', '0', '0', '', ''}
end

if op == 'renew' then
  if r.state == 'reserved' then redis.call('ZADD', open, 'XX', whole(now), id) end
  return {'done', '0', '0', '', ''}
end

if op == 'release' then
  if r.state == nil or r.state == 'denied' then
    close('released', ARGV[3])
  elseif r.state == 'reserved' then
    add(where, 'reserved', amounts, -1)
    close('released', ARGV[4])
  elseif r.state == 'orphaned' then
    add(where, 'spent', amounts, -1)
    add(where, 'orphans', -1)
    close('released', ARGV[4])
  end
  commit()
  if r.state == 'orphaned' then journal('release', amounts, where, r.name) end
  return {'done', '0', '0', r.state == 'released' and count() or counted, ''}
end

if op == 'orphan' then
  if r.state ~= 'reserved' then
    counted = r.state and count() or ''
    return {0, counted, reserved()}
  end
  add(where, 'reserved', amounts, -1)
  add(where, 'spent', amounts)
  add(where, 'orphans', 1)
  close('orphaned', ARGV[4])
  commit()
  journal('orphan', amounts, where, r.name)
  return {1, counted, reserved()}
end

-- settle: actual cost (-1: as reserved); without a reservation: amount (-1: not counted), and accounts that pay. What the
-- call took of other units is among the details of these accounts, by budget: else it counts as reserved.
if r.state == 'settled' then
  counted = count()
  return {'duplicate', '0', '0', counted, reserved()}
end
local cost = number(ARGV[6])
if r.state == nil or #where == 0 then
  local otherwise = number(ARGV[7])
  if cost < 0 then cost = otherwise end
  local list, own = accounts(8)
  local paid, is_free = split(list, cost, own), cost == 0
  for _, share in pairs(paid) do is_free = is_free and share == 0 end
  if otherwise < 0 or is_free then
    close('settled')
    return {'unreserved', '0', '0', '', ''}
  end
  add(keys_of(list), 'spent', paid)
  close('settled')
  commit(list)
  journal('charge', 0, keys_of(list))
  return stray(#list > 0 and 'charged' or 'unplaced')
end
local is_as_reserved = cost < 0
if is_as_reserved then cost = amount end
local costs = details(8)[4] or {}
local own = own_of(r)
local paid, over, outcome, dear = {}, 0, 'late', {}
for _, key in ipairs(where) do
  local unit = account(key).unit or ''
  if unit == '' then
    paid[key] = is_as_reserved and amounts[key] or cost
  else -- an amount of 0 is another call's, which could have run instead
    paid[key] = own[key] ~= 0 and number(costs[budget_of(key)] or amounts[key]) or 0
  end
  if (r.state == 'reserved' or r.state == 'orphaned') and paid[key] > amounts[key] then
    dear[#dear + 1] = key
    over = math.max(over, paid[key] - amounts[key])
  end
end
if r.state == 'reserved' then
  add(where, 'reserved', amounts, -1)
  add(where, 'spent', paid)
  outcome = 'settled'
elseif r.state == 'orphaned' then
  local spent = {}
  for _, key in ipairs(where) do spent[key] = paid[key] - amounts[key] end
  add(where, 'spent', spent)
  add(where, 'orphans', -1)
  outcome = 'corrected'
else
  add(where, 'spent', paid)
  amount = 0
end
add(dear, 'overruns', 1)
close('settled')
commit()
journal('settle', outcome == 'late' and 0 or amounts, where, r.name)
return {outcome, whole(amount), whole(over), counted, reserved()}
