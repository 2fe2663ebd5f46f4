# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fills the database of a Samba AD DC that does not run: a group, users with POSIX attributes, and a site.

usage: fill_controller.py SMB_CONF SAM_LDB PASSWORD
"""

import sys

from samba import sites, subnets
from samba.auth import system_session
from samba.param import LoadParm
from samba.samdb import SamDB

FIRST_ID = 20_000
USERS = 6


def main(conf, database, password):
    parameters = LoadParm()
    parameters.load(conf)
    samdb = SamDB(url=database, session_info=system_session(), lp=parameters)
    samdb.newgroup("staff", gidnumber=FIRST_ID, nisdomain="lab")
    for number in range(USERS):
        name = f"u{number}"
        samdb.newuser(
            name,
            password,
            uid=name,
            uidnumber=FIRST_ID + number,
            gidnumber=FIRST_ID,
            unixhome=f"/home/{name}",
            loginshell="/bin/sh",
        )
    configuration = samdb.get_config_basedn()
    sites.create_site(samdb, configuration, "Berlin")
    subnets.create_subnet(samdb, configuration, "192.0.2.0/24", "Berlin")


main(*sys.argv[1:])
