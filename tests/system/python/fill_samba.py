#!/usr/bin/python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Adds entries to the database of a stopped Samba AD DC, in one transaction.

usage: fill_samba.py SMB_CONF SAM_LDB < ENTRIES.json

ENTRIES.json: [{"dn": DN, ATTRIBUTE: VALUE or [VALUE, …], "password": TEXT}, …]. Debian's python3-samba belongs to its own
interpreter, which the first line names.
"""

import json
import sys

from samba.auth import system_session
from samba.param import LoadParm
from samba.samdb import SamDB


def main():
    settings = LoadParm()
    settings.load(sys.argv[1])
    database = SamDB(url=sys.argv[2], session_info=system_session(), lp=settings)
    database.transaction_start()
    for entry in json.load(sys.stdin):
        password = entry.pop("password", None)
        if password is not None:
            entry["unicodePwd"] = f'"{password}"'.encode("utf-16-le")
        database.add(entry)
    database.transaction_commit()


main()
