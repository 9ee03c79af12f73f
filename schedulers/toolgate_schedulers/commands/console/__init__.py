"""`toolgate console`: serve a web page for watching decisions and answering the calls that wait.

    facts ─▶ Watcher ─▶ Ring (newest decisions) ─▶ Hub ─▶ a bounded queue a page ─▶ server-sent events
                   └──▶ Rates (counts over time) ─▶ /api/rates
    store ─▶ Inbox (held calls, `toolgate approvals`' own code) ─▶ /api/approvals, answers

    journal, facts ─▶ BudgetReader ─▶ /api/budgets        record, roster ─▶ RevisionReader ─▶ /api/revisions
                                                 queues of slots ─▶ QueueReader ─▶ /api/queue

`access` decides which requests may see anything at all. The page (`static`) is plain HTML, CSS and
JavaScript; it fetches nothing from other servers.
"""
