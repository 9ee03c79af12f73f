"""Changes for the worse of the servers and sentinels that an overlay starts."""

from mutation import BUS, Mutant

MAKE_ACL = "deploy/redis/make_acl.py"
TRIED = (
    "../deploy/test_make_acl.py::"
    "test_servers_and_sentinels_that_are_named_get_users_and_passwords_of_their_own"
)
PODS = "../deploy/test_kubernetes.py"
SHARED = "../deploy/test_tls.py::test_connections_share_what_is_read_from_files_until_one_is_renewed"
DRIVER = f"{BUS}/transport/redis/client/driver.py"
MUTANTS = (
    Mutant(
        "overlay",
        "each connection reads all authorities of the system",
        DRIVER,
        "        _contexts[key] = context\n",
        "",
        SHARED,
    ),
    Mutant(
        "overlay",
        "a certificate that is renewed is not seen",
        DRIVER,
        "key = (*said, *(_read_state(file) for file in files if file))",
        "key = (*said, *(file for file in files if file))",
        SHARED,
    ),
    Mutant(
        "overlay",
        "the sentinels are asked as nobody",
        MAKE_ACL,
        '{"sentinel_username": "client", "sentinel_password": client}',
        "{}",
        TRIED,
    ),
    Mutant(
        "overlay",
        "a password of a node is made anew each time",
        MAKE_ACL,
        'return (urlsplit(kept).password if "://" in kept else kept)',
        "return urlsplit(kept).password",
        TRIED,
    ),
    Mutant(
        "overlay",
        "two servers may leave at once",
        "deploy/kubernetes/sentinel/valkey.yaml",
        "maxUnavailable: 1",
        "maxUnavailable: 2",
        f"{PODS}::test_of_servers_and_sentinels_one_may_leave_and_no_node_has_two",
    ),
    Mutant(
        "overlay",
        "clients may not ask the sentinels",
        "deploy/kubernetes/sentinel/network.yaml",
        "        - podSelector: {matchLabels: {toolgate/bus: client}}\n"
        "        - podSelector: {matchLabels: {app.kubernetes.io/name: sentinel}}\n"
        "      ports: [{protocol: TCP, port: sentinel}]",
        "        - podSelector: {matchLabels: {app.kubernetes.io/name: sentinel}}\n"
        "      ports: [{protocol: TCP, port: sentinel}]",
        f"{PODS}::test_servers_and_sentinels_reach_each_other_and_are_reached_by_clients_alone",
    ),
)
