# SPDX-License-Identifier: MIT OR Apache-2.0
"""Cinder's commands with Cinder's filter file, through the client of oslo.rootwrap and one of two daemons.

usage: openstack_filters.py SCENARIO CONF DIRECTORY BYTES DAEMON…

CONF has the filters of Cinder. DAEMON is a command line that lacks CONF. Each scenario runs its commands through each
daemon, and expects the same exit code and the same output. `volumes` needs a private mount namespace and lvm2.
"""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import struct
import subprocess
import sys

from oslo_rootwrap import client as oslo_client

SCENARIO, CONF, DIRECTORY, BYTES, *DAEMONS = sys.argv[1:]
MIB = 1 << 20
LOOP_CTL_GET_FREE = 0x4C82
LOOP_CONFIGURE = 0x4C0A
# The kernel frees the device when the last descriptor is closed.
LO_FLAGS_AUTOCLEAR = 4
# All of lvm2 except for the device mapper, so the test needs no driver for it and makes no device on the machine.
LVM_CONF = """
global {{ activation=0 use_lvmlockd=0 use_lvmpolld=0 event_activation=0 }}
devices {{
    filter=["a|^{device}$|", "r|.*|"]
    use_devicesfile=0
    obtain_device_list_from_udev=0
    external_device_info_source="none"
}}
backup {{ backup=0 archive=0 }}
"""
ENV = ['env', 'LC_ALL=C']


@contextlib.contextmanager
def a_client(daemon):
    client = oslo_client.Client([*daemon.split(), CONF])
    try:
        yield client
    finally:
        if client._initialized:
            client._finalize()
            client._process.wait(60)


@contextlib.contextmanager
def loop_device(file):
    """A device with the content of the file."""
    for _ in range(100):
        with open('/dev/loop-control') as control:
            path = f'/dev/loop{fcntl.ioctl(control, LOOP_CTL_GET_FREE)}'
        with open(path, 'r+b', buffering=0) as device, open(file, 'r+b') as backing:
            info = struct.pack('=5Q4I64s64s32s2Q', 0, 0, 0, 0, 0, 0, 0, 0, LO_FLAGS_AUTOCLEAR, b'', b'', b'', 0, 0)
            try:
                fcntl.ioctl(device, LOOP_CONFIGURE, struct.pack('=II', backing.fileno(), 0) + info + bytes(64))
            except OSError:
                # Another process took it first.
                continue
            yield path
            return
    raise AssertionError('no free loop device')


def show(result):
    """A result without the rates of dd, and without lvm2's remarks about descriptors of its parent."""
    code, out, err = result
    err = re.sub(r'^File descriptor \d+ .* leaked on .*\n', '', err, flags=re.MULTILINE)
    return [code, out, re.sub(r'[\d.e-]+ s, [\d.]+ .B/s', 'TIME', err)]


def same_results(commands):
    """Runs the commands with their expected codes through each daemon, and compares all results."""
    results = []
    for daemon in DAEMONS:
        with a_client(daemon) as client:
            told = []
            for code, command in commands:
                result = show(client.execute(command))
                assert result[0] == code, f'{daemon}: {command}: {result}, expected {code}'
                told.append((command, result))
            results.append(told)
    for others in results[1:]:
        for expected, found in zip(results[0], others):
            assert expected == found, f'{expected} != {found}'
    print(f'{len(commands)} commands, {len(DAEMONS)} daemons')
    return results[0]


def volumes():
    """The commands of os_brick.local_dev.lvm and cinder.volume.drivers.lvm, in the order of a volume's life."""
    disk = os.path.join(DIRECTORY, 'disk')
    with open(disk, 'wb') as file:
        file.truncate(256 * MIB)
    for folder in ['/run/lvm', '/run/lock/lvm', '/etc/lvm']:
        os.makedirs(folder, exist_ok=True)
        subprocess.run(['mount', '-t', 'tmpfs', 'none', folder], check=True)
    with loop_device(disk) as device:
        pathlib.Path('/etc/lvm/lvm.conf').write_text(LVM_CONF.format(device=device))
        subprocess.run(['pvcreate', '-q', device], check=True, close_fds=True)
        subprocess.run(['vgcreate', '-q', 'stack', device], check=True, close_fds=True)
        told = same_results(volume_commands(device))
        listed = [result[1].split() for command, result in told if command[2:3] == ['lvs']]
        assert listed == [[], ['stack', 'volume-1', '0.01'], ['stack', 'volume-1', '0.02'], []], listed


def volume_commands(device):
    image = os.path.join(DIRECTORY, 'image')
    lvs = [*ENV, 'lvs', '--noheadings', '--unit=g', '-o', 'vg_name,name,size', '--nosuffix', '--readonly', 'stack']
    attributes = [*ENV, 'lvdisplay', '--noheading', '-C', '-o', 'Attr', '--readonly', 'stack/volume-1']
    separate = [*ENV, 'LVM_SYSTEM_DIR=/etc/lvm', 'LVM_SUPPRESS_FD_WARNINGS=1']
    remove = ['lvremove', '--config', 'activation { retry_deactivation = 1} ', '-f']
    return [
        # Start of the service.
        (0, [*ENV, 'vgs', '--version']),
        (0, [*ENV, 'vgs', '--noheadings', '-o', 'name', '--readonly', 'stack']),
        (0, [*ENV, 'vgs', '--noheadings', '-o', 'uuid', '--readonly', 'stack']),
        (0, [*ENV, 'pvs', '--noheadings', '--unit=g', '-o', 'vg_name,name,size,free', '--separator', '|', '--nosuffix']),
        (0, [*separate, 'vgs', '--noheadings', '--unit=g', '-o', 'name,size,free,lv_count,uuid', '--separator', ':',
             '--nosuffix', '--readonly', 'stack']),
        (0, lvs),
        # A volume.
        (0, [*ENV, 'lvcreate', '-n', 'volume-1', 'stack', '-L', '8m']),
        (5, [*ENV, 'lvcreate', '-n', 'volume-1', 'stack', '-L', '8m']),
        (5, [*separate, 'lvcreate', '-n', 'volume-2', 'stack', '-L', '1t']),
        (0, lvs),
        (0, attributes),
        (0, ['lvchange', '-a', 'y', '--yes', '-K', 'stack/volume-1']),
        (0, [*ENV, 'lvextend', '-L', '16m', 'stack/volume-1']),
        (0, lvs),
        # A snapshot and a thin pool need the device mapper.
        (5, [*ENV, 'lvcreate', '--name', '_snapshot-1', '-k', 'y', '--snapshot', 'stack/volume-1', '-L', '0.01g']),
        (5, [*ENV, 'lvcreate', '-T', '-V', '8m', '-n', 'volume-3', 'stack/stack-pool']),
        # The content of a volume.
        (0, ['ionice', '-c3', 'dd', 'if=/dev/zero', f'of={image}', 'bs=1M', 'count=3', 'conv=fdatasync']),
        (0, ['ionice', '-c2', '-n7', 'dd', f'if={image}', f'of={image}-2', 'bs=64k']),
        (0, ['stat', '-c', '%s %a %u', f'{image}-2']),
        (0, ['truncate', '-s', '8M', f'{image}-2']),
        (0, ['chmod', '660', f'{image}-2']),
        (0, ['chown', '65534', f'{image}-2']),
        (0, ['du', '--apparent-size', f'{image}-2']),
        (0, ['mv', f'{image}-2', f'{image}-3']),
        (0, ['stat', '-c', '%s %a %u', f'{image}-3']),
        (1, ['stat', f'{image}-2']),
        (0, ['rm', '-f', image, f'{image}-3']),
        # Its end.
        (0, ['lvchange', '-a', 'n', 'stack/volume-1']),
        (0, [*remove, 'stack/volume-1']),
        (5, [*remove, 'stack/volume-1']),
        (0, lvs),
        # Commands without a rule, or with another environment.
        (99, ['vgcreate', 'stack2', device]),
        (99, ['lvrename', 'stack', 'volume-1', 'volume-2']),
        (99, ['lvs', 'stack']),
        (99, [*ENV, 'LVM_PROFILE=x', 'lvs', 'stack']),
        (99, [*ENV, 'sh', '-c', 'id']),
        (99, ['ionice', '-c3', 'sh', '-c', 'id']),
        (99, ['ionice', '-c4', 'dd']),
        # A rule, and no executable.
        (96, ['mmgetstate', '-Y']),
        (96, [*ENV, 'qemu-img', 'info', image]),
    ]  # fmt: skip


def stdin():
    """BYTES of standard input, as a driver writes an image."""
    data = os.urandom(MIB) * (int(BYTES) // MIB)
    expected = hashlib.sha256(data).hexdigest()
    for number, daemon in enumerate(DAEMONS):
        file = pathlib.Path(DIRECTORY, f'image-{number}')
        with a_client(daemon) as client:
            code, out, err = client.execute(['dd', f'of={file}', 'bs=1M', 'iflag=fullblock'], stdin=data)
        assert (code, out) == (0, ''), (daemon, code, err)
        with file.open('rb') as written:
            assert hashlib.file_digest(written, 'sha256').hexdigest() == expected, daemon
        file.unlink()
    print(f'{len(data)} bytes, {len(DAEMONS)} daemons')


globals()[SCENARIO]()
