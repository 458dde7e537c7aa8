"""Servers, with plain clients."""

import os
import re
import signal

from .program import Program, answers, find

NGINX = """
daemon off;
{user}worker_processes 2;
pid nginx.pid;
error_log stderr error;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy;
    fastcgi_temp_path fast; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    gzip on; gzip_types text/plain; gzip_min_length 100;
    server {{ listen 127.0.0.1:{port}; root .; default_type text/plain; }}
}}
"""


def nginx(context):
    """nginx with a configuration for this run's port."""
    user = "user root;\n" if os.getuid() == 0 else ""
    context.write("nginx.conf", NGINX.format(port=context.port, user=user))
    return ["nginx", "-p", context.folder, "-c", context.path("nginx.conf"), "-e", "stderr"]


def ask_nginx(context):
    """Many requests, compressed; what ab says that has no times in it, and a page."""
    url = f"http://127.0.0.1:{context.port}/page"
    count = str(context.size(20_000, 500))
    said = context.plain("ab", "-q", "-k", "-c", "8", "-n", count, "-H", "Accept-Encoding: gzip", url)
    kept = re.findall(rb"(?:Complete requests|Failed requests|Document Length):.*", said)
    return b"\n".join(kept) + b"\n" + context.plain("curl", "-s", url)


def redis(context):
    """A server at a socket, which writes nothing to disk. (A crash report would touch all memory that is mapped.)"""
    options = ["--port", "0", "--save", "", "--daemonize", "no", "--crash-memcheck-enabled", "no"]
    return ["redis-server", "--unixsocket", context.path("s"), *options]


def ask_redis(context):
    """Pipelined and single requests; what the server then holds."""
    count = str(context.size(150_000, 10_000))
    context.plain(
        "redis-benchmark", "-s", "s", "-q", "-t", "set,get,lpush,sadd,hset", "-n", count, "-P", "16", "-d", "100"
    )
    context.plain("redis-benchmark", "-s", "s", "-q", "-t", "set,get", "-n", str(context.size(20_000, 1000)))
    text = (
        "".join(f"set key:{i} value{i}\n" for i in range(context.size(20_000, 5000)))
        + "dbsize\nllen mylist\nstrlen key:77\n"
    )
    return b"\n".join(context.plain("redis-cli", "-s", "s", text=text).split()[-3:])


def ask_memcached(context):
    """Values set and asked for through one connection."""
    import socket

    said = []
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(context.path("s"))
        file = client.makefile("rwb")
        for i in range(context.size(40_000, 3000)):
            value = b"v" * (i % 3000)
            file.write(b"set k%d 0 0 %d\r\n%s\r\nget k%d\r\n" % (i, len(value), value, i // 2))
            file.flush()
            said.append(file.readline())
            while not said[-1].startswith(b"END"):
                said.append(file.readline()[:20])
    return b"".join(said)


def run_as_root():
    """memcached and MariaDB want to be told."""
    return ["-u", "root"] if os.getuid() == 0 else []


def prepare_postgres(context):
    """A cluster in the folder."""
    context.plain("initdb", "-D", "data", "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale=C")


def postgres(context):
    """The server at a socket in its folder."""
    options = ["fsync=off", "shared_buffers=32MB", "listen_addresses=", f"unix_socket_directories={context.folder}"]
    return [find("/usr/lib/postgresql/*/bin/postgres"), "-D", "data"] + [
        word for option in options for word in ("-c", option)
    ]


def ask_psql(context, *statements):
    """Answers of the server to statements."""
    options = [word for statement in statements for word in ("-c", statement)]
    return context.plain("psql", "-h", context.folder, "-U", "postgres", "-X", "-At", *options, "postgres")


def ask_postgres(context):
    """pgbench with a fixed seed; what its tables then hold."""
    common = ["pgbench", "-h", context.folder, "-U", "postgres"]
    context.plain(*common, "-i", "-q", "-s", str(context.size(4, 1)), "postgres")
    context.plain(*common, "-c", "4", "-j", "2", "-t", str(context.size(400, 20)), "--random-seed=1", "postgres")
    return ask_psql(
        context,
        "select count(*), sum(abalance) from pgbench_accounts",
        "select count(*), sum(delta) from pgbench_history",
        f"select count(distinct md5(i::text)) from generate_series(1, {context.size(200_000, 10_000)}) i",
    )


def is_ready(name):
    """A server that is ready when its socket answers."""
    return lambda context: answers(context.path(name))


def prepare_mariadb(context):
    """System tables in the folder."""
    user = ["--user=root"] if os.getuid() == 0 else []
    context.plain(
        "mariadb-install-db",
        "--no-defaults",
        f"--datadir={context.path('data')}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--innodb-log-file-size=4M",
        *user,
    )


def mariadb(context):
    """The server at a socket in its folder."""
    user = ["--user=root"] if os.getuid() == 0 else []
    return [
        "mariadbd",
        "--no-defaults",
        f"--datadir={context.path('data')}",
        f"--socket={context.path('s')}",
        "--skip-networking",
        "--innodb-log-file-size=4M",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-buffer-pool-size=32M",
        *user,
    ]


def ask_mariadb(context):
    """A table is filled, sorted and grouped."""
    statements = [
        "create database d; use d; create table t (id int primary key, name varchar(40), value int)",
        "insert into t select seq, concat('name', seq), seq * 7919 % 10007 "
        f"from seq_1_to_{context.size(200_000, 5000)}",
        "select count(*), sum(value), max(name) from t",
        "select value, count(*) n from t group by value order by n desc, value limit 5",
    ]
    return context.plain("mariadb", "--no-defaults", "-S", "s", "-u", "root", "-N", "-e", "; ".join(statements))


PROGRAMS = [
    Program(
        "redis",
        ("redis-server", "redis-tools"),
        ("redis-server", "redis-benchmark", "redis-cli"),
        redis,
        drive=ask_redis,
        ready=is_ready("s"),
    ),
    Program(
        "nginx",
        ("nginx-light", "apache2-utils", "curl"),
        ("nginx", "ab", "curl"),
        nginx,
        prepare=lambda context: context.write("page", "".join(f"line {i} of a page\n" for i in range(500))),
        drive=ask_nginx,
        ready=lambda context: answers(context.port),
        stop=signal.SIGQUIT,
    ),
    Program(
        "PostgreSQL",
        ("postgresql",),
        ("/usr/lib/postgresql/*/bin/postgres", "initdb", "pgbench", "psql"),
        postgres,
        prepare=prepare_postgres,
        unprivileged=True,
        drive=ask_postgres,
        ready=lambda context: answers(context.path(".s.PGSQL.5432")),
        stop=signal.SIGINT,
    ),
    Program(
        "memcached",
        ("memcached",),
        ("memcached",),
        lambda context: ["memcached", "-s", context.path("s"), "-m", "512", *run_as_root()],
        drive=ask_memcached,
        ready=is_ready("s"),
    ),
    Program(
        "MariaDB",
        ("mariadb-server-core", "mariadb-client-core"),
        ("mariadbd", "mariadb-install-db", "mariadb"),
        mariadb,
        prepare=prepare_mariadb,
        drive=ask_mariadb,
        ready=is_ready("s"),
    ),
]
for _program in PROGRAMS:
    _program.compared = "its clients' answers, its exit status"
