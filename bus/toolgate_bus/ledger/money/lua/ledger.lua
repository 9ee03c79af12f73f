-- The ledger's rules, which the server runs atomically (see `ledger.py` for the rules themselves).
--
-- Lua cannot undo a write. So everything is read, and thereby checked for its type, and every sum is computed within
-- its bounds, before the first write; only the two lists, which are not read, are written first. A server that is out
-- of memory refuses `reserve` and `charge`, but not the operations that give money back or settle.
--
-- Keys of one namespace, all in one slot (`p` is their prefix):
--     p:r:<decision>         hash: state, phase, status, name, amount, short, left, owner, since, exec,
--                            n, k1…kn (account keys), m1…mn (amounts of accounts that count something else than
--                            `amount`); a tombstone has no phase
--     p:s:<slice>:<part>     hash: decisions settled (`r` and the id: phase, owner) and events charged (`u` and the id)
--     p:a:<key>:<window>     hash: limit, spent, reserved, overruns, orphans; unit, unless it counts money; kept (until
--                            when, by server time in ms; 0: for ever)
--     p:open                 sorted set of decisions that hold money, by server time (ms)
--     p:accounts             set of account keys with their windows
--     p:journal              stream: each change of money spent, written with it; the newest 100,000
--     p:astray               hash: number of costs reported without a reservation, by outcome
--     p:epoch                hash: identity of the ledger, and number of changes of each writer (`epoch.py`)
-- The last argument is the writer (empty: the change is not counted), or `@` and an epoch: a forgotten change is made
-- again without being counted, in the ledger of that epoch alone.
local p, op, id = KEYS[1], ARGV[1], ARGV[2]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local rkey, open, ekey = p .. ':r:' .. id, p .. ':open', p .. ':epoch'
local writer, counted = ARGV[#ARGV], ''
local most = 9007199254740991
if string.sub(writer, 1, 1) == '@' then
  if (redis.call('HGET', ekey, 'id') or '') ~= string.sub(writer, 2) then return {'another'} end
  writer = ''
end

local function fields(key)
  local flat, map = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do map[flat[i]] = flat[i + 1] end
  return map
end
local function number(value)
  local found = tonumber(value or '0')
  return found == found and found or 0
end
local function whole(value) return string.format('%.0f', value) end
local function places(r)
  if r.places == nil then
    r.places = {}
    for i = 1, number(r.n) do r.places[i] = r['k' .. i] end
  end
  return r.places
end

local function unpacked(packed)
  local fine, found = pcall(cmsgpack.unpack, packed)
  return fine and type(found) == 'table' and found or {}
end
local function budget_of(key) return string.match(key, '^[^/]*') end
-- Return the amounts of a decision in accounts that count something else; and the amount in each of its accounts.
local function own_of(r)
  local found = {}
  for i, key in ipairs(places(r)) do found[key] = r['m' .. i] and number(r['m' .. i]) end
  return found
end
local function held_by(r)
  local own, found = own_of(r), {}
  for _, key in ipairs(places(r)) do found[key] = own[key] or number(r.amount) end
  return found
end

-- Changes to write to accounts: `add` reads and computes, `commit` writes, each account at once. An amount is a number,
-- or a table of numbers by account.
local have, names_to_write, is_changed, moved = {}, {}, false, {}
local function account(key)
  if have[key] == nil then have[key] = fields(p .. ':a:' .. key) end
  return have[key]
end
local function put(key, name, value)
  account(key)[name] = value
  if names_to_write[key] == nil then names_to_write[key] = {} end
  table.insert(names_to_write[key], name)
end
local function add(where, name, amounts, sign)
  for _, key in ipairs(where) do
    local one, amount = account(key), amounts
    if type(amounts) == 'table' then amount = amounts[key] * (sign or 1) end
    if amount ~= 0 then
      local was = number(one[name])
      put(key, name, math.min(math.max(was + amount, 0), most))
      if name == 'spent' then moved[key] = (moved[key] or 0) + one[name] - was end
      is_changed = true
    end
  end
end
-- Count one more change of the writer, and return its number. A writer that learns that a change was made before counts
-- it as well: it relies on the change, and may have made it without hearing of it.
local function count()
  local found = writer ~= '' and redis.pcall('HINCRBY', ekey, 'w:' .. writer, 1)
  return type(found) == 'number' and whole(found) or ''
end
local function list_them(list)
  local keys = {}
  for i, one in ipairs(list) do keys[i] = one.key end
  if #keys > 0 then redis.call('SADD', p .. ':accounts', unpack(keys)) end
end
-- Write the changes. `used` are the accounts that are kept from now on. Their time is set to an eighth more, or each call
-- would set it.
local function commit(used)
  local lasting = {}
  list_them(used or {})
  for _, one in ipairs(used or {}) do
    local key, has, keep = one.key, account(one.key), one.keep
    if has.limit ~= one.limit then put(key, 'limit', one.limit) end
    if one.unit ~= '' and has.unit ~= one.unit then put(key, 'unit', one.unit) end
    if keep > 0 and number(has.kept) < now + keep then
      lasting[key] = math.floor(keep * 9 / 8)
      put(key, 'kept', now + lasting[key])
    elseif keep <= 0 and has.kept ~= '0' then
      lasting[key] = 0
      put(key, 'kept', '0')
    end
  end
  for key, names in pairs(names_to_write) do
    local words = {}
    for i, name in ipairs(names) do
      local value = have[key][name]
      words[2 * i - 1], words[2 * i] = name, type(value) == 'number' and whole(value) or value
    end
    redis.call('HSET', p .. ':a:' .. key, unpack(words))
  end
  for key, ms in pairs(lasting) do
    if ms > 0 then redis.call('PEXPIRE', p .. ':a:' .. key, ms) else redis.call('PERSIST', p .. ':a:' .. key) end
  end
  if is_changed then counted = count() end
end

-- Write an entry of the journal, after everything else. If it cannot be written (an older user's rights, a key of
-- another type), the books are right nevertheless, and a report tells by how much the journal differs from them.
local function write_entry(entry)
  redis.pcall('XADD', p .. ':journal', 'MAXLEN', '~', 100000, '*', 'entry', cmsgpack.pack(entry))
end
-- Write one entry for the accounts that changed by the same amount of a unit, mostly all of them. If an account changed
-- by another amount, as it was set to zero, the difference is a `part`: the change is reported once. The first entry of
-- each further unit is a `part`, too, and says with `of` what kind of change it is.
local function journal(kind, reserved, where, name, by)
  local found, groups = {}, {}
  for _, key in ipairs(where) do
    local amount, unit = moved[key] or 0, account(key).unit or ''
    moved[key] = nil
    if amount ~= 0 then
      local group = unit .. ' ' .. whole(amount)
      if not found[group] then
        local was = type(reserved) == 'table' and reserved[key] or reserved
        found[group] = {unit = unit, amount = amount, places = {}, reserved = was}
        groups[#groups + 1] = found[group]
      end
      local account, window = string.match(key, '^(.*):(%d+)$')
      table.insert(found[group].places, {account, tonumber(window)})
    end
  end
  table.sort(groups, function(a, b)
    if a.unit ~= b.unit then return a.unit < b.unit end -- money first
    return math.abs(a.amount) > math.abs(b.amount)
  end)
  for i, group in ipairs(groups) do
    local entry = {
      event = 'ledger', kind = i == 1 and kind or 'part', id = id, amount = group.amount, reserved = group.reserved,
      accounts = group.places, at = now / 1000,
    }
    if group.unit ~= '' then entry.unit = group.unit end
    if i > 1 and group.unit ~= groups[i - 1].unit then entry.of = kind end
    if name and name ~= '' then entry.tool = string.match(name, '^%S+') end
    if by and by ~= '' then entry.by = by end
    write_entry(entry)
  end
end

-- [n, then for each account: key, limit (-1: none), window_s, keep_ms; then further details, packed: units by account,
-- what happens at their limits, amounts by account (of each offer), costs by budget, whether each offer may exceed a limit
-- of which a person is asked], from ARGV[at] on. Return the accounts, amounts, costs, the place behind, and the last.
local function details(at)
  local more = ARGV[at + 1 + 4 * number(ARGV[at])]
  return more ~= '' and unpacked(more) or {}
end
local function accounts(at)
  local found, n, more = {}, number(ARGV[at]), details(at)
  for i = 0, n - 1 do
    local j = at + 1 + i * 4
    local window = number(ARGV[j + 2])
    local index = 0
    if window > 0 then index = math.floor(now / 1000 / window) end
    if window < 0 then index = -window end -- of the calendar, which the server has not
    found[i + 1] = {
      key = ARGV[j] .. ':' .. whole(index), bare = ARGV[j], limit = ARGV[j + 1], keep = number(ARGV[j + 3]),
      unit = more[1] and more[1][i + 1] or '', at_limit = more[2] and more[2][i + 1] or '',
    }
  end
  return found, more[3] or {}, more[4] or {}, at + 2 + 4 * n, more[5] or {}
end
-- Return the amount for each of these accounts: `amount`, unless `own` has another one.
local function split(list, amount, own)
  local found = {}
  for _, one in ipairs(list) do found[one.key] = number(own[one.bare] or amount) end
  return found
end
local function keys_of(list)
  local found = {}
  for i, one in ipairs(list) do found[i] = one.key end
  return found
end

-- Whoever reads facts may repeat those of the last 6,000 seconds, so for two hours the ledger knows what is settled. A
-- whole record takes 400 bytes. After a minute, when no failover forgets its end any more, some 70 are left: an entry in
-- one of many small hashes, which the server packs. They are those of a slice of two hours, and of the one before.
local slice_ms, whole_ms = 7200000, 60000
local function slice_key(one, back)
  return p .. ':s:' .. math.floor(now / slice_ms) - back .. ':' .. string.sub(one, 1, 5)
end
-- `late`: how long ago it may have been, in ms, for those who come later are not asked about; else two hours.
local function mark_of(one, late)
  local words = redis.call('HGET', slice_key(one, 0), one)
  if words or now % slice_ms > (late or slice_ms) then return words end
  return redis.call('HGET', slice_key(one, 1), one)
end
local function mark(one, words)
  local key = slice_key(one, 0)
  redis.call('HSET', key, one, words)
  redis.call('PEXPIRE', key, 2 * slice_ms)
end
local function mark_settled(one, phase, owner) mark('r' .. one, (phase or '') .. ' ' .. (owner or '')) end
-- Return the record of a decision; of one that was settled a while ago, its state, phase and owner.
local function record(one, late)
  local r = fields(p .. ':r:' .. one)
  local words = next(r) == nil and mark_of('r' .. one, late)
  if not words then return r end
  local phase, owner = string.match(words, '^(%S*) (.*)$')
  return {state = 'settled', phase = phase ~= '' and phase or nil, owner = owner}
end

-- A decision belongs to the one that asked about it. Without an owner or a name, it is of an older release.
local function is_foreign(r, by) return by ~= '' and (r.owner or '') ~= '' and r.owner ~= by end
-- Another owner's tombstone does not count.
local function known(by, late)
  local r = record(id, late)
  if r.phase == nil and is_foreign(r, by) then return {} end
  return r
end
