# SPDX-License-Identifier: MIT OR Apache-2.0
"""Answers requests with libsss_idmap itself: the ids that SSSD gives to SIDs. One line of output for each request.

    range MIN MAX SIZE HELPERS   starts again with a range and ldap_idmap_helper_table_size
    domain SID SLICE             adds a domain; SLICE is a number, or "-"; prints its slice
    id SID                       prints the id, or "error CODE"
    sid ID                       prints the SID, or "error CODE"
"""
import ctypes
import sys

LIBRARY = ctypes.CDLL("libsss_idmap.so.0")
NO_SLICE = 0xFFFFFFFF


class Range(ctypes.Structure):
    """`struct sss_idmap_range`."""

    _fields_ = [("min", ctypes.c_uint32), ("max", ctypes.c_uint32)]


def check(code):
    """Fails on an error of a call that the tests never make fail."""
    if code != 0:
        raise RuntimeError(f"libsss_idmap: error {code}")


def start(low, high, size, helpers):
    """Returns a new context."""
    context = ctypes.c_void_p()
    check(LIBRARY.sss_idmap_init(None, None, None, ctypes.byref(context)))
    check(LIBRARY.sss_idmap_ctx_set_lower(context, ctypes.c_uint32(int(low))))
    check(LIBRARY.sss_idmap_ctx_set_upper(context, ctypes.c_uint32(int(high))))
    check(LIBRARY.sss_idmap_ctx_set_rangesize(context, ctypes.c_uint32(int(size))))
    check(LIBRARY.sss_idmap_ctx_set_autorid(context, False))
    check(LIBRARY.sss_idmap_ctx_set_extra_slice_init(context, int(helpers)))
    return context


def add_domain(context, sid, name):
    """Adds a domain and returns its slice."""
    number = ctypes.c_uint32(NO_SLICE if name == "-" else int(name))
    ids, sid = Range(), sid.encode()
    code = LIBRARY.sss_idmap_calculate_range(context, sid, ctypes.byref(number), ctypes.byref(ids))
    if code != 0:
        return f"error {code}"
    add = LIBRARY.sss_idmap_add_auto_domain_ex
    check(add(context, sid, sid, ctypes.byref(ids), None, 0, False, None, None))
    return number.value


def find_id(context, sid):
    """Returns the id of a SID."""
    number = ctypes.c_uint32()
    code = LIBRARY.sss_idmap_sid_to_unix(context, sid.encode(), ctypes.byref(number))
    return number.value if code == 0 else f"error {code}"


def find_sid(context, number):
    """Returns the SID of an id, if it has the id."""
    sid = ctypes.c_char_p()
    code = LIBRARY.sss_idmap_unix_to_sid(context, ctypes.c_uint32(int(number)), ctypes.byref(sid))
    if code != 0:
        return f"error {code}"
    sid = sid.value.decode()
    # The end of a slice may be above the largest RID. The library computes with 32 bits, and returns another account.
    return sid if find_id(context, sid) == int(number) else "error wrapped"


def main():
    """Reads requests until the end of standard input."""
    context = None
    for line in sys.stdin:
        request, *values = line.split()
        if request == "range":
            if context is not None:
                check(LIBRARY.sss_idmap_free(context))
            context, answer = start(*values), "ok"
        elif request == "domain":
            answer = add_domain(context, *values)
        elif request == "id":
            answer = find_id(context, *values)
        else:
            answer = find_sid(context, *values)
        print(answer)


main()
