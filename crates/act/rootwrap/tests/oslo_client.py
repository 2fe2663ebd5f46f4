# SPDX-License-Identifier: MIT OR Apache-2.0
"""The unchanged client of oslo.rootwrap against our daemon: one scenario by its name.

usage: oslo_client.py SCENARIO DAEMON CONF DIRECTORY

CONF lets sh, cat and echo run as root, and id as the user `nobody`. A scenario asserts its claims. It ends with
0 when all of it holds.
"""

import contextlib
import faulthandler
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from oslo_rootwrap import client as oslo_client
from oslo_rootwrap import jsonrpc

SCENARIO, DAEMON, CONF, DIRECTORY = sys.argv[1:]
MIB = 1 << 20
# A scenario that blocks prints its position before it is killed.
faulthandler.dump_traceback_later(280)
# Limit of the memory of the daemon, for any amount of data.
MEMORY_MAX = 30 * MIB


@contextlib.contextmanager
def a_client(*options, by=()):
    client = oslo_client.Client([*by, DAEMON, *options, CONF])
    try:
        yield client
    finally:
        if client._initialized:
            client._finalize()
            client._process.wait(60)


def address(client):
    return client._manager.address


def key(client):
    return bytes(client._manager._authkey)


def eventually(holds, what):
    """Waits, and fails after 60 s."""
    for _ in range(6000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError(f'not within 60 s: {what}')


def killed(command):
    """Kills the processes of this command line, and returns their numbers."""
    found = []
    for process in os.listdir('/proc'):
        try:
            with open(f'/proc/{process}/cmdline', 'rb') as words:
                if words.read().replace(b'\0', b' ').strip() == command.encode():
                    found.append(int(process))
        except OSError:
            pass
    for process in found:
        os.kill(process, signal.SIGKILL)
    return found


def is_gone(pid):
    return not os.path.exists(f'/proc/{pid}')


def peak_memory(pid):
    with open(f'/proc/{pid}/status') as status:
        line = next(line for line in status if line.startswith('VmHWM:'))
    return int(line.split()[1]) * 1024


def connection(client):
    """An authenticated connection for commands, and the name of an object."""
    manager = jsonrpc.JsonClient(address(client), key(client))
    manager.send((None, 'create', ('rootwrap',), {}))
    name = manager.recv()[1][0]
    manager.close()
    conn = jsonrpc.JsonClient(address(client), key(client))
    conn.send((None, 'accept_connection', ('test',), {}))
    assert conn.recv() == ['#RETURN', None]
    return conn, name


def streams():
    with a_client() as client:
        assert client.execute(['echo', 'hi']) == [0, 'hi\n', '']
        assert client.execute(['cat']) == [0, '', '']
        assert client.execute(['cat'], stdin='') == [0, '', '']
        assert client.execute(['sh', '-c', 'echo out; echo err >&2']) == [0, 'out\n', 'err\n']
        everything = bytes(range(256)) * 3
        assert client.execute(['cat'], stdin=everything) == [0, os.fsdecode(everything), '']
        text = 'e\u0301\u00e9 \U0001f4a9 "\\ \n\r\t\x00\x7f \udcff\udc80'
        assert client.execute(['cat'], stdin=text) == [0, text, '']
        assert client.execute(['echo', '-n', 'a', '\udcff', '\u00e9"\\\n']) == [0, 'a \udcff \u00e9"\\\n', '']
        assert client.execute(['sh', '-c', 'cat >&2'], stdin=b'\xc3') == [0, '', '\udcc3']


def codes():
    with a_client() as client:
        for command, code in [
            (['sh', '-c', 'exit 7'], 7),
            (['sh', '-c', 'kill -9 $$'], -9),
            (['sh', '-c', 'kill -15 $$'], -15),
            (['no-executable'], 96),
            (['unheard-of'], 99),
            ([], 99),
        ]:
            assert client.execute(command) == [code, '', ''], command
        # With an input that the command does not read.
        assert client.execute(['unheard-of'], stdin=b'x' * MIB) == [99, '', '']
        assert client.execute(['sh', '-c', 'exit 3'], stdin=b'x' * MIB) == [3, '', '']


def rights():
    with a_client() as client:
        for _ in range(4):
            assert client.execute(['id', '-u'])[1].strip() == str(uid_of('nobody'))
            assert client.execute(['sh', '-c', 'id -u; id -G; ls /proc/self/fd'])[1] == '0\n0\n0\n1\n2\n3\n'
        script = 'ulimit -n; grep -E "Sig(Blk|Ign)" /proc/self/status'
        limit, blocked, ignored = client.execute(['sh', '-c', script])[1].splitlines()
        assert limit == '200', limit
        assert int(blocked.split()[1], 16) == 0, blocked
        assert int(ignored.split()[1], 16) & 0x7FFFFFFF == 0, ignored


def uid_of(name):
    import pwd

    return pwd.getpwnam(name).pw_uid


def threads():
    """Each thread has its connection, as in the real client. All run at once."""
    with a_client() as client:
        client.execute(['echo'])
        wrong = []

        def work(number):
            for turn in range(10):
                text = f'{number}-{turn}-' + 'x' * (number * 1000)
                result = client._proxy.run_one_command(['cat'], text)
                if result != [0, text, '']:
                    wrong.append((number, turn, result))

        all_threads = [threading.Thread(target=work, args=(number,)) for number in range(32)]
        for thread in all_threads:
            thread.start()
        for thread in all_threads:
            thread.join()
        assert not wrong, wrong[0]


def large():
    with a_client() as client:
        client.execute(['echo'])
        pid = client._process.pid
        data = b'0123456789abcde\n' * (200 * MIB // 16)
        assert client.execute(['sh', '-c', 'wc -c'], stdin=data) == [0, f'{len(data)}\n', '']
        del data
        code, out, err = client.execute(['sh', '-c', f'yes 0123456789abcde | head -c {200 * MIB}'])
        assert (code, len(out), err) == (0, 200 * MIB, '')
        assert out[:32] == '0123456789abcde\n' * 2 == out[-32:]
        del out
        noise = os.urandom(4 * MIB)
        assert client.execute(['cat'], stdin=noise) == [0, os.fsdecode(noise), '']
        assert peak_memory(pid) < MEMORY_MAX, peak_memory(pid)


def too_much():
    """CONF allows 1 MiB of data."""
    with a_client() as client:
        for command, stdin in [
            (['cat'], b'x' * (MIB + 1)),
            (['cat'], b'x' * (9 * MIB)),
            (['sh', '-c', 'yes'], None),
            (['sh', '-c', 'yes >&2'], None),
        ]:
            try:
                client._ensure_initialized()
                client._proxy.run_one_command(command, stdin)
            except Exception as error:
                assert 'roster_data_max' in str(error), error
            else:
                raise AssertionError(f'{command} passed')
        assert client.execute(['cat'], stdin=b'x' * MIB)[0] == 0


def graceful():
    for number in (signal.SIGTERM, signal.SIGINT):
        with a_client() as client:
            client.execute(['echo'])
            pid, path = client._process.pid, address(client)
            conn, name = connection(client)
            fifo = os.path.join(DIRECTORY, f'fifo{number}')
            os.mkfifo(fifo)
            script = f'echo > {fifo}; sleep 1; cat; echo done'
            conn.send((name, 'run_one_command', (['sh', '-c', script], 'text'), {}))
            with open(fifo) as started:
                started.readline()
            os.kill(pid, number)
            assert conn.recv() == ['#RETURN', [0, 'textdone\n', '']]
            assert client._process.wait() == 0
            assert not os.path.exists(os.path.dirname(path))
            # The client starts another daemon.
            assert client.execute(['echo', 'again']) == [0, 'again\n', '']
            path = address(client)
        assert not os.path.exists(os.path.dirname(path))


def client_killed():
    """The daemon ends after the commands of its client, and leaves no files."""
    begun, go, mark = (os.path.join(DIRECTORY, name) for name in ('begun', 'go', 'mark'))
    waits = f'echo > {begun}; until [ -e {go} ]; do sleep 0.05; done; echo > {mark}'
    script = (
        'import sys, threading, time\n'
        'from oslo_rootwrap import client\n'
        f'c = client.Client([{DAEMON!r}, {CONF!r}])\n'
        'c.execute(["echo"])\n'
        f'go = lambda: c.execute(["sh", "-c", {waits!r}])\n'
        'threading.Thread(target=go).start()\n'
        'print(c._process.pid, c._manager.address, flush=True)\n'
        'time.sleep(600)\n'
    )
    process = subprocess.Popen([sys.executable, '-c', script], stdout=subprocess.PIPE, universal_newlines=True)
    pid, path = process.stdout.readline().split()
    eventually(lambda: os.path.exists(begun), 'the command runs')
    process.kill()
    process.wait()
    assert not is_gone(pid), 'the daemon waits for the command'
    with open(go, 'w'):
        pass
    eventually(lambda: is_gone(pid), 'the daemon ends with its client')
    assert os.path.exists(mark)
    assert not os.path.exists(os.path.dirname(path))


def daemon_killed():
    """The client starts another daemon, which removes files of the killed one."""
    with a_client() as client:
        client.execute(['echo'])
        left = os.path.dirname(address(client))
        client._process.kill()
        client._process.wait()
        assert os.path.exists(left)
        # The directory is a minute old, because a new one might not be locked yet.
        os.utime(left, (os.stat(left).st_mtime - 61,) * 2)
        assert client.execute(['echo', 'x']) == [0, 'x\n', '']
        assert not os.path.exists(left)
        ours = os.path.dirname(address(client))
        os.utime(ours, (os.stat(ours).st_mtime - 61,) * 2)
        with a_client() as other:
            other.execute(['echo'])
            assert os.path.exists(ours), 'that of one that lives stays'


def idle():
    """CONF has a daemon_timeout of 1."""
    with a_client() as client:
        client.execute(['echo'])
        pid = client._process.pid
        for _ in range(4):
            time.sleep(1)
            client.execute(['echo'])
        assert client.execute(['sh', '-c', 'sleep 4; echo x']) == [0, 'x\n', '']
        time.sleep(1)
        assert client._process.pid == pid and not is_gone(pid), 'it is not idle while it works'
        assert client._process.wait(60) == 0
        assert client.execute(['echo', 'x']) == [0, 'x\n', '']


def grandchild():
    """A process with the pipes of a command delays neither it nor others."""
    with a_client() as client:
        client.execute(['echo'])
        mark = f'64{os.getpid()}.25'
        assert client.execute(['sh', '-c', f'sleep {mark} & echo started']) == [0, 'started\n', '']
        assert client.execute(['sh', '-c', f'sleep {mark} >/dev/null & exit 5']) == [5, '', '']
        # Both continue, and end with the test.
        assert len(killed(f'sleep {mark}')) == 2
        assert client.execute(['sh', '-c', '(sleep 0.2; echo late) & echo soon']) == [0, 'soon\nlate\n', '']


def open_to_all(client):
    """The file system has no access lists for several users."""
    os.chmod(address(client), 0o666)


def strangers():
    """Another user gets no byte, and delays no client."""
    with a_client() as client:
        client.execute(['echo'])
        script = (
            'import os, socket, sys\n'
            'os.setgid(65534); os.setuid(65534)\n'
            'try:\n'
            '    socket.socket(socket.AF_UNIX).connect(sys.argv[1])\n'
            'except PermissionError:\n'
            '    sys.exit(7)\n'
        )
        assert subprocess.call([sys.executable, '-c', script, address(client)]) == 7
        open_to_all(client)
        script = (
            'import os, socket, sys\n'
            'os.setgid(65534); os.setuid(65534)\n'
            'for _ in range(1000):\n'
            '    s = socket.socket(socket.AF_UNIX)\n'
            '    s.settimeout(60)\n'
            '    s.connect(sys.argv[1])\n'
            '    assert s.recv(1) == b""\n'
        )
        stranger = subprocess.Popen([sys.executable, '-c', script, address(client)])
        while stranger.poll() is None:
            assert client.execute(['echo', 'x']) == [0, 'x\n', '']
        assert stranger.returncode == 0
        held = subprocess.Popen(
            [sys.executable, '-c', script.replace('assert s.recv(1) == b""', 's.recv(1); s.close()'), address(client)]
        )
        assert held.wait() == 0


# A close() of this socket waits up to an hour: it has SO_LINGER and unread data.
LINGERING = '''
import socket, struct, sys
def lingering(listener):
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    client.connect(listener.getsockname())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 3600))
    client.setblocking(False)
    try:
        while True:
            client.send(bytes(65536))
    except BlockingIOError:
        return client
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
listener.bind(('127.0.0.1', 0))
listener.listen(256)
'''


def lingering():
    """Descriptors that other users leave in connections delay no client at their close."""
    script = LINGERING + (
        'import os\n'
        'sockets = [lingering(listener) for _ in range(100)]\n'
        'os.setgid(65534); os.setuid(65534)\n'
        'for sent in sockets:\n'
        '    s = socket.socket(socket.AF_UNIX)\n'
        '    s.connect(sys.argv[1])\n'
        '    try:\n'
        '        socket.send_fds(s, [b"x"], [sent.fileno()])\n'
        '    except PermissionError:\n'
        # The kernel refuses it for the daemon. This process would have to wait an hour for its close.
        '        sent.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))\n'
        '    sent.close()\n'
        'print(flush=True)\n'
        'sys.stdin.read()\n'
    )
    with a_client() as client:
        client.execute(['echo'])
        open_to_all(client)
        # The connections have arrived before the daemon accepts them.
        client._process.send_signal(signal.SIGSTOP)
        command = [sys.executable, '-c', script, address(client)]
        stranger = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            stranger.stdout.read(1)
        finally:
            client._process.send_signal(signal.SIGCONT)
        # Each descriptor of the other user takes an hour to close.
        conn, _ = connection(client)
        conn.close()
        assert client.execute(['echo', 'x']) == [0, 'x\n', '']
        assert stranger.poll() is None
        process = client._process
    process.wait(60)
    stranger.communicate()


# Starts a program as on a kernel before Linux 6.16, without SO_PASSRIGHTS.
WITHOUT_REFUSAL = '''
import ctypes, os, struct, sys
number = {'x86_64': 54, 'aarch64': 208}[os.uname().machine]
# Load the number of the call and its third argument, and return ENOPROTOOPT if both match.
code = [(0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 32), (0x15, 0, 1, 83)]
code += [(6, 0, 0, 0x5005C), (6, 0, 0, 0x7FFF0000)]
filter = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in code))
program = struct.pack('HxxxxxxP', len(code), ctypes.addressof(filter))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
os.execvp(sys.argv[1], sys.argv[1:])
'''


def leaving():
    """A command starts without a wait while connections with such descriptors are closed."""
    script = LINGERING + (
        'import os\n'
        'os.setgid(65534); os.setuid(65534)\n'
        'kept = []\n'
        'for number in range(9000):\n'
        '    s = socket.socket(socket.AF_UNIX)\n'
        '    s.connect(sys.argv[1])\n'
        '    sent = lingering(listener)\n'
        '    kept.append(listener.accept()[0])\n'
        '    try:\n'
        '        socket.send_fds(s, [b"x"], [sent.fileno()])\n'
        '    except BrokenPipeError:\n'
        # The daemon has rejected it before.
        '        sent.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))\n'
        '    sent.close()\n'
        '    s.close()\n'
        '    if number == 16:\n'
        '        print(flush=True)\n'
        'sys.stdin.read()\n'
    )
    with a_client(by=[sys.executable, '-c', WITHOUT_REFUSAL]) as client:
        client.execute(['echo'])
        open_to_all(client)
        command = [sys.executable, '-c', script, address(client)]
        stranger = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert stranger.stdout.read(1)
            ran = []

            def run():
                for _ in range(600):
                    ran.append(client.execute(['echo', 'x']))

            runs = threading.Thread(target=run, daemon=True)
            runs.start()
            runs.join(60)
            assert ran == 600 * [[0, 'x\n', '']], len(ran)
            assert stranger.poll() is None
        finally:
            stranger.kill()
            stranger.wait()


def apart():
    """Commands start without descriptors of clients: the threads that start them have none in their tables."""

    def open_in(task):
        found = {}
        for name in os.listdir(f'{task}/fd'):
            with contextlib.suppress(FileNotFoundError):
                found[name] = os.readlink(f'{task}/fd/{name}')
        return found

    def tables(pid, thread):
        found = []
        for name in os.listdir(f'/proc/{pid}/task'):
            with contextlib.suppress(FileNotFoundError), open(f'/proc/{pid}/task/{name}/comm') as comm:
                if comm.read() == f'{thread}\n':
                    found.append(open_in(f'/proc/{pid}/task/{name}'))
        return found

    with a_client() as client:
        assert client.execute(['echo'])[0] == 0
        pid = client._process.pid
        [first], own = tables(pid, 'starters'), open_in(f'/proc/{pid}')
        conns = [connection(client) for _ in range(20)]
        for conn, name in conns:
            conn.send((name, 'run_one_command', (['sh', '-c', 'sleep 0.3; ls /proc/$$/fd; :'], None), {}))
        for conn, _ in conns:
            assert conn.recv() == ['#RETURN', [0, '0\n1\n2\n', '']]
        # Another user needs a stage, which is started ahead.
        assert client.execute(['id'])[0] == 0
        assert len(open_in(f'/proc/{pid}')) >= len(own) + 20
        assert tables(pid, 'starters') == [first]
        assert len(tables(pid, 'starter')) > 0
        # Descriptors for a start are closed after it.
        eventually(lambda: all(table == first for table in tables(pid, 'starter')), 'nothing is left in them')


def flooded():
    """Continuous connections of other users do not prevent its end."""
    script = (
        'import os, socket, sys\n'
        'os.setgid(65534); os.setuid(65534)\n'
        'print(flush=True)\n'
        'while os.path.exists(sys.argv[1]):\n'
        '    s = socket.socket(socket.AF_UNIX)\n'
        '    s.setblocking(False)\n'
        '    s.connect_ex(sys.argv[1])\n'
        '    s.close()\n'
    )
    with a_client() as client:
        client.execute(['echo'])
        open_to_all(client)
        command = [sys.executable, '-c', script, address(client)]
        strangers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(10)]
        for stranger in strangers:
            stranger.stdout.read(1)
        time.sleep(0.5)
        # They continue until it has ended.
        client._process.terminate()
        client._process.wait(60)
        for stranger in strangers:
            stranger.wait(60)


def allowed():
    """The owner of the pipe and users of --allow-uid may connect, with the key."""
    script = (
        'import os, socket, sys\n'
        'os.setgid(65534); os.setuid(int(sys.argv[2]))\n'
        's = socket.socket(socket.AF_UNIX)\n'
        'try:\n'
        '    s.connect(sys.argv[1])\n'
        'except PermissionError:\n'
        '    sys.exit(7)\n'
        'assert bool(s.recv(8)) == (sys.argv[2] != "65533")\n'
    )
    for named in (['65534'], ['65534', '65532']):
        with a_client(*(word for uid in named for word in ('--allow-uid', uid))) as client:
            client.execute(['echo'])
            came = [subprocess.call([sys.executable, '-c', script, address(client), uid]) for uid in [*named, '65533']]
            assert came == [0] * len(named) + [7], came
            open_to_all(client)
            assert subprocess.call([sys.executable, '-c', script, address(client), '65533']) == 0


def silent():
    """1,500 connections that send nothing, and some that send slowly."""
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    with a_client() as client:
        client.execute(['echo'])
        held = []
        for number in range(1500):
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].connect(address(client))
            if number % 100 == 0:
                assert client.execute(['echo', 'x']) == [0, 'x\n', '']
        slow = socket.socket(socket.AF_UNIX)
        slow.connect(address(client))
        slow.send(struct.pack('!Q', 200))
        try:
            for _ in range(199):
                slow.send(b'\0')
                time.sleep(0.5)
            raise AssertionError('slow bytes are taken for ever')
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert client.execute(['echo', 'x']) == [0, 'x\n', '']
        assert peak_memory(client._process.pid) < MEMORY_MAX


def hostile():
    """Lengths and messages that no client sends."""
    with a_client() as client:
        client.execute(['echo'])
        pid = client._process.pid
        for claim in (257, 4 << 30, (1 << 64) - 1):
            conn = socket.socket(socket.AF_UNIX)
            conn.connect(address(client))
            received(conn)
            conn.sendall(struct.pack('!Q', claim) + b'x' * 300)
            assert ended(conn), claim
        conn = socket.socket(socket.AF_UNIX)
        conn.connect(address(client))
        received(conn)
        conn.sendall(struct.pack('!Q', 16) + b'x' * 16)
        assert received(conn) == b'#FAILURE#'
        assert ended(conn)
        for claim in (4 << 30, (1 << 64) - 1):
            conn, name = connection(client)
            conn._socket.sendall(struct.pack('!Q', claim) + b'["' + name.encode() + b'","run_one_command",[["cat"],"')
            conn._socket.sendall(b'x' * (8 * MIB))
            conn.close()
        for words in (
            b'', b'[', b'null', b'[]', b'{}', b'[[[[[[[[', b'[' * 100000, b'"', b'\xff', b'[null,"run_one_command"]',
            b'["%s","run_one_command",[["sh","-c"', b'["%s","run_one_command",[[1]],{}]',
            b'["%s","run_one_command",[["cat"],{"__bytes__":"!"}],{}]',
            b'["%s","run_one_command",[["cat"],"\\ud800"],{}]', b'["%s","run_one_command",[["cat"]],{}]x',
            b'["%s","__class__",[],{}]', b'["77","run_one_command",[["cat"]],{}]',
            b'["%s","run_one_command",[["' + b'x' * (9 * MIB) + b'"]],{}]',
        ):
            conn, name = connection(client)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                conn.send_bytes(words.replace(b'%s', name.encode()))
                answer = json.loads(conn.recv_bytes())
                assert answer[0] == '#TRACEBACK', (words[:80], answer)
            conn.close()
        assert client.execute(['echo', 'x']) == [0, 'x\n', '']
        assert client._process.pid == pid and client._process.poll() is None
        assert peak_memory(pid) < MEMORY_MAX + 16 * MIB, peak_memory(pid)


def received(conn):
    size = struct.unpack('!Q', conn.recv(8, socket.MSG_WAITALL))[0]
    return conn.recv(size, socket.MSG_WAITALL)


def ended(conn):
    conn.settimeout(60)
    try:
        return conn.recv(1) == b''
    except ConnectionResetError:
        return True


def pieces():
    """An input arrives whole, with any sizes of its pieces."""
    with a_client() as client:
        client.execute(['echo'])
        conn, name = connection(client)
        conn._socket.settimeout(60)
        for count in (300000, 300001, 300002):
            for data in (b'x' * count, 'x' * count):
                request = jsonrpc.JsonConnection.dumps((name, 'run_one_command', (['sh', '-c', 'wc -c'], data), {}))
                for cut in (*range(1, 14), count // 2, count):
                    conn._socket.sendall(struct.pack('!Q', len(request)) + request[:-cut])
                    time.sleep(0.01)
                    conn._socket.sendall(request[-cut:])
                    assert conn.recv() == ['#RETURN', [0, f'{count}\n', '']], (count, cut)


def broken_input():
    """A command with incomplete input is killed, so that it does not take a part for the whole."""
    with a_client() as client:
        client.execute(['echo'])
        conn, name = connection(client)
        part, mark = os.path.join(DIRECTORY, 'part'), os.path.join(DIRECTORY, 'whole')
        words = json.dumps([name, 'run_one_command', [['sh', '-c', f'cat > {part}; echo > {mark}'], 'x' * 4 * MIB], {}])
        conn._socket.sendall(struct.pack('!Q', len(words)) + words[: 2 * MIB].encode())
        eventually(lambda: os.path.exists(part) and os.path.getsize(part) > MIB, 'the first half arrives')
        conn.close()
        small, name = connection(client)
        words = json.dumps([name, 'run_one_command', [['sh', '-c', f'echo > {mark}'], 'xyz'], {}])
        small._socket.sendall(struct.pack('!Q', len(words)) + words[:-5].encode())
        small.close()
        assert client.execute(['sh', '-c', 'sleep 0.3'])[0] == 0
        assert not os.path.exists(mark)


def never_ends():
    """A command that does not end delays no other client."""
    with a_client() as client:
        client.execute(['echo'])
        pid, path = client._process.pid, address(client)
        conn, name = connection(client)
        fifo = os.path.join(DIRECTORY, 'fifo')
        os.mkfifo(fifo)
        conn.send((name, 'run_one_command', (['sh', '-c', f'echo $$ > {fifo}; exec sleep 86400'],), {}))
        with open(fifo) as started:
            endless = int(started.readline())
        # The client disconnects. The command continues, as with oslo.rootwrap, and others are served.
        conn.close()
        for _ in range(20):
            assert client.execute(['echo', 'x']) == [0, 'x\n', '']
        assert not is_gone(endless)
        other, name = connection(client)
        other.send((name, 'run_one_command', (['sh', '-c', f'echo $$ > {fifo}; exec sleep 86400'],), {}))
        with open(fifo) as started:
            second = int(started.readline())
        # A daemon that is to stop accepts no further request, and waits.
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: not answers(path), 'it takes no connections')
        assert not is_gone(pid)
        os.kill(second, signal.SIGKILL)
        assert other.recv() == ['#RETURN', [-9, '', '']]
        assert client._process.poll() is None
        os.kill(endless, signal.SIGKILL)
        assert client._process.wait(60) == 0
        assert not os.path.exists(os.path.dirname(path))


def answers(path):
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as conn:
        try:
            conn.connect(path)
            return bool(conn.recv(1))
        except OSError:
            return False


def full_pipes():
    """A client that does not read delays only itself."""
    with a_client() as client:
        client.execute(['echo'])
        pid = client._process.pid
        # Both outputs fill before the command reads its input.
        script = f'head -c {MIB} /dev/zero >&2; head -c {MIB} /dev/zero; wc -c; head -c {MIB} /dev/zero >&2'
        for data in (b'x' * 4 * MIB, 'x' * 4 * MIB):
            code, out, err = client.execute(['sh', '-c', script], stdin=data)
            assert (code, out[MIB:], len(err)) == (0, f'{4 * MIB}\n', 2 * MIB)
        # A client that requests much output and reads none of it.
        lazy = [connection(client) for _ in range(8)]
        for conn, name in lazy:
            conn.send((name, 'run_one_command', (['sh', '-c', f'head -c {8 * MIB} /dev/zero | tr "\\0" x'],), {}))
        for _ in range(50):
            assert client.execute(['echo', 'x']) == [0, 'x\n', '']
        assert lazy[0][0].recv() == ['#RETURN', [0, 'x' * 8 * MIB, '']]
        for conn, _ in lazy:
            conn.close()
        assert peak_memory(pid) < MEMORY_MAX, peak_memory(pid)


def leaks():
    """A command has three descriptors, and the daemon keeps none of them, with any number and end of commands."""
    with a_client() as client:
        client.execute(['echo'])
        folder = f'/proc/{client._process.pid}/fd'
        client._proxy.run_one_command(['id', '-u'])
        wrong = []

        def work(number):
            for _ in range(15):
                # The fourth descriptor is that of ls, on the listed directory.
                seen = client._proxy.run_one_command(['sh', '-c', 'cat > /dev/null; ls /proc/self/fd'], 'x' * number)
                if seen != [0, '0\n1\n2\n3\n', '']:
                    wrong.append(seen)
                for command in (['unheard-of'], ['no-executable'], ['id', '-u'], ['sh', '-c', 'kill -9 $$']):
                    client._proxy.run_one_command(command)
                with contextlib.suppress(Exception):
                    client._proxy.run_one_command(['noise'])

        all_threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
        for thread in all_threads:
            thread.start()
        for thread in all_threads:
            thread.join()
        assert not wrong, wrong[0]
        del all_threads
        # Descriptors of connections end with their threads. Two of the next stage may stay.
        eventually(lambda: len(os.listdir(folder)) < 24, f'few descriptors, not {len(os.listdir(folder))}')
        assert zombies(client._process.pid) == 0


def zombies(parent):
    found = 0
    for pid in filter(str.isdigit, os.listdir('/proc')):
        with contextlib.suppress(OSError), open(f'/proc/{pid}/stat') as stat:
            state, its_parent = stat.read().rsplit(')', 1)[1].split()[:2]
            found += state == 'Z' and int(its_parent) == parent
    return found


def few_files():
    """CONF allows 64 open files. Further connections wait."""
    with a_client() as client:
        client.execute(['echo'])
        results = []

        def work():
            with contextlib.suppress(EOFError, OSError):
                results.append(client._proxy.run_one_command(['sh', '-c', 'sleep 0.05; echo x'], 'in'))

        all_threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in all_threads:
            thread.start()
        for thread in all_threads:
            thread.join()
        assert results == [[0, 'x\n', '']] * 6, results


def full_disk():
    """TMPDIR is a disk of 1 MiB."""
    with a_client() as client:
        client._ensure_initialized()
        pid = client._process.pid
        try:
            client._proxy.run_one_command(['sh', '-c', 'yes'])
        except Exception as error:
            assert 'cannot be stored' in str(error), error
        else:
            raise AssertionError('the output was stored')
        assert client._proxy.run_one_command(['echo', 'x']) == [0, 'x\n', '']
        assert client._process.pid == pid


def syslog():
    """/dev is a directory of the test. CONF logs warnings with facility local1."""
    log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    log.bind('/dev/log')
    log.settimeout(60)
    name = os.path.basename(DAEMON)
    with a_client() as client:
        assert client.execute(['echo', 'told to nobody'])[0] == 0
        assert client.execute(['unheard-of', 'a b'])[0] == 99
        told = log.recv(8192)
        expected = f"<{17 << 3 | 4}>{name}: Unauthorized command: unheard-of 'a b' (no filter matched)\0"
        assert told == expected.encode(), told
        assert client.execute(['no-executable'])[0] == 96
        told = log.recv(8192)
        assert told.endswith(b': Executable not found: /no/such/no-executable (filter match = no)\0'), told
        # A log without a reader delays no command, and a restarted log gets messages again.
        for _ in range(300):
            assert client.execute(['unheard-of'])[0] == 99
        log.close()
        os.unlink('/dev/log')
        assert client.execute(['unheard-of'])[0] == 99
        log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        log.bind('/dev/log')
        log.settimeout(60)
        assert client.execute(['unheard-of'])[0] == 99
        assert b'unheard-of' in log.recv(8192)


def unserializable():
    """A command that the system does not execute is an exception for the client, as with oslo.rootwrap."""
    with a_client() as client:
        try:
            client.execute(['noise'])
        except Exception as error:
            assert 'Unserializable' in str(error) and 'Exec format error' in str(error), error
        else:
            raise AssertionError('it ran')
        assert client.execute(['echo', 'x']) == [0, 'x\n', '']


globals()[SCENARIO]()
