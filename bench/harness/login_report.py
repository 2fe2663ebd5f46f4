# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables about logging in, by pam_roster and by pam_sss."""

from .table import Table


def tables(results):
    part = results.get("login")
    if not part:
        return []
    return [
        _online(part),
        _crowd(part),
        _kerberos(part),
        _offline(part["offline"]),
        _away(part["away"]),
        _refused(part["refused"]),
    ]


def _online(part):
    rows = []
    for name, each in part["online"].items():
        above, account = each["above_ns"], part["account"][name]
        rows.append([
            name,
            *(_ms(median) for median in (each["bare_ns"]["median"], each["asked_ns"]["median"], above["median"])),
            _half(above),
            _ms(account["median"]),
            _half(account),
            str(above["n"]),
        ])  # fmt: skip
    return Table(
        f"Logins while the directory answers, ms, medians: {part['corpus']}",
        ["", "bare bind", "pam_authenticate", "above it", "middle half", "pam_acct_mgmt", "middle half", "logins"],
        rows,
        ["Bare bind and login in turn, each of another user. Passwords are in clear in the directory.", *part["faults"]],
    )


def _crowd(part):
    rows = [
        [name, f"{each['per_s']['median']:,.0f}", _ms(each["p50_ns"]["median"]), _ms(each["p99_ns"]["median"])]
        for name, each in part["crowd"].items()
    ]
    return Table(
        f"Logins of {part['clients']} programs without a pause, from pam_start to pam_end, ms",
        ["", "logins/s", "p50", "p99"],
        rows,
        ["Password and account. What is kept of the passwords for when the directory is away is up to date."],
    )


def _kerberos(part):
    rows = [
        [
            name,
            *(_ms(each[field]["median"]) for field in ("bare_ns", "asked_ns", "above_ns")),
            _half(each["above_ns"]),
            f"{each['per_s']['median']:,.0f}",
            str(each["asked_ns"]["n"]),
        ]
        for name, each in part["krb5"].items()
    ]
    return Table(
        "Logins by Kerberos, ms, medians",
        ["", "bare AS exchange", "pam_authenticate", "above it", "middle half", f"logins/s of {part['clients']}", "logins"],
        rows,
        [
            "Bare exchange, by the same libkrb5 in a program that has it ready, and login in turn, each of another user.",
            "With a key of the host there is one exchange more: the KDC shows that it knows that key.",
        ],
    )


def _offline(part):
    names = {"reference": "the reference implementation", "own": "rosterd itself"}
    rows = [
        [
            name,
            names[by],
            _ms(each[by]["bare_ns"]["median"]),
            _ms(each["asked_ns"]["median"]),
            _ms(each[by]["above_ns"]["median"]),
            _half(each[by]["above_ns"]),
            str(each["asked_ns"]["n"]),
        ]
        for name, each in part.items()
        for by in names
    ]
    return Table(
        "Logins while the directory is away, ms, medians",
        ["", "verification by", "verification", "pam_authenticate", "above it", "middle half", "logins"],
        rows,
        [
            *(f"Argon2id, {each['parameters']}." for each in part.values()),
            "By rosterd itself: for how long its verifying thread was on a processor or waited for one, in the login.",
        ],
    )


def _away(part):
    rows = []
    for way, by_daemon in part.items():
        for name, each in by_daemon.items():
            first = each["first_ns"]
            rows.append([
                name,
                way,
                _ms(first["median"]),
                _ms(first["max"]),
                _ms(each["later_ns"]["median"]),
                _ms(each["later_above_ns"]["median"]) if "later_above_ns" in each else "–",
                str(first["n"]),
            ])  # fmt: skip
    return Table(
        "Logins from the moment in which the directory goes, verification included, ms",
        ["", "the directory", "the first", "at most", "later ones", "above it", "times"],
        rows,
        ["Above it: the later ones without the verification, by rosterd itself. SSSD's is no Argon2id."],
    )


def _refused(part):
    rows = [
        [name, reason, _ms(series["median"]), _half(series), str(series["n"])]
        for name, by_reason in part.items()
        for reason, series in by_reason.items()
    ]
    return Table(
        "Refusals by reason, ms",
        ["", "refused for", "median", "middle half", "times"],
        rows,
        ["Time should not tell whether a user exists."],
    )


def _half(series):
    return f"{_ms(series['p25'])} – {_ms(series['p75'])}"


def _ms(ns):
    ms = ns / 1e6
    return f"{ms:,.0f}" if abs(ms) >= 1000 else f"{ms:.1f}" if abs(ms) >= 10 else f"{ms:.3f}"
