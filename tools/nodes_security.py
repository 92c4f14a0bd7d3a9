"""The `[security]` of daemons that tools start: certificates and keys are made by `ternctl pki`."""

import subprocess

MODES = ("plaintext", "tls", "key")


def pki(programs, *words):
    subprocess.run([programs / "ternctl", "pki", *map(str, words)], check=True,
                   stdout=subprocess.DEVNULL)


def tls_settings(programs, folder, address, node):
    """A node's settings; the authority of all nodes is made with the first."""
    authority = folder / "authority"
    if not authority.exists():
        pki(programs, "init-ca", authority)
    own = folder / f"node{node}" / "pki"
    if not own.exists():
        pki(programs, "issue", authority, address, "--out", own)
    return (f'peer_security = "tls"\ntls_ca_file = "{authority}/ca.pem"\n'
            f'tls_certificate_file = "{own}/{address}.pem"\ntls_key_file = "{own}/{address}.key"\n')


def key_settings(programs, folder):
    key = folder / "cluster.key"
    if not key.exists():
        pki(programs, "new-key", key)
    return f'peer_security = "key"\ncluster_key_file = "{key}"\n'


def security_settings(mode, programs, folder, address, node):
    """The lines below `[security]` for a node."""
    if mode == "tls":
        return tls_settings(programs, folder, address, node)
    if mode == "key":
        return key_settings(programs, folder)
    return 'peer_security = "plaintext"\n'
