"""Keys and certificates: a node's key pair (ECDSA P-384), and a certificate authority of the coordinator's own.

Sends nothing.

The authority is valid for ten years and its key stays in the link's folder. So the server's certificate, which is valid
for a year, can be renewed without sending anything to the nodes.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from unpooled.errors import BadParameter, DataNotFound
from unpooled.store import write_file

YEAR = datetime.timedelta(days=365)
RENEW_BEFORE = datetime.timedelta(days=30)


def make_node_key(path: Path, name: str = "") -> Path:
    """Write a node's key pair.

    Parameters
    ----------
    path : Path
        Where the private key goes, readable by its owner alone; the public key goes beside it as .pub.
    name : str, default=""
        The node's name, kept as the comment of the public key; `admit` uses it.

    Returns
    -------
    Path
        The public key's file.
    """
    public = path.with_suffix(".pub")
    if path.exists():
        raise BadParameter(f"{path} exists already: delete it first to make a new key")
    key = ec.generate_private_key(ec.SECP384R1())
    _write_private(path, key)
    encoding = serialization.Encoding.OpenSSH
    form = serialization.PublicFormat.OpenSSH
    text = key.public_key().public_bytes(encoding, form).decode()
    public.write_text(f"{text} {name}".strip() + "\n")
    return public


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key in OpenSSH format, readable by its owner alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(content)


def read_node_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read a node's private key from a file; the error says how to make one."""
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    except FileNotFoundError as error:
        raise DataNotFound(f"{path} is not there: make it with `unpooled node keygen {path}`") from error
    except ValueError as error:
        raise BadParameter(
            f"{path} is not a private key without a password: make one with `unpooled node keygen`"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadParameter(f"{path} holds a key of another kind: make one with `unpooled node keygen`")
    return key


def name_in(path: Path) -> str:
    """The node's name in the comment of a public key file; empty if there is none."""
    words = path.read_text(errors="replace").split(None, 2)
    return words[2].strip() if len(words) == 3 else ""


def read_public_key(path: Path) -> ec.EllipticCurvePublicKey:
    """Read a node's public key from a file; the error says how to make one."""
    try:
        key = serialization.load_ssh_public_key(path.read_bytes())
    except FileNotFoundError as error:
        raise DataNotFound(f"{path} is not there: a node makes it with `unpooled node keygen`") from error
    except ValueError as error:
        raise BadParameter(
            f"{path} is not a public key: send the .pub file that `unpooled node keygen` made"
        ) from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise BadParameter(
            f"{path} holds a key of another kind: a node makes the right one with `unpooled node keygen`"
        )
    return key


def make_authority(folder: Path, hosts: Sequence[str], valid: datetime.timedelta = YEAR) -> None:
    """Write a certificate authority and a server certificate.

    Parameters
    ----------
    folder : Path
        Gets ca.crt (for the nodes), ca.key, server.crt and server.key.
    hosts : sequence of str
        The names and addresses that nodes reach the server by.
    valid : timedelta, default=one year
        How long the server's certificate is valid; the authority is valid for ten times as long.
    """
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    name = _name("unpooled link")
    ca = _certificate(name, name, key.public_key(), 10 * valid)
    ca = ca.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    ca = ca.add_extension(_usage(sign=True), critical=True)
    ca = ca.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    (folder / "ca.crt").write_bytes(ca.sign(key, hashes.SHA384()).public_bytes(serialization.Encoding.PEM))
    _write_secret(folder / "ca.key", key)
    _issue(folder, key, name, hosts, valid)


def renew(folder: Path, valid: datetime.timedelta = YEAR) -> datetime.datetime:
    """Issue a new server certificate for the same hosts, by the same authority.

    Parameters
    ----------
    folder : Path
        A link's folder with ca.crt, ca.key and server.crt.
    valid : timedelta, default=one year
        How long the new certificate is valid.

    Returns
    -------
    datetime
        When the new certificate expires.
    """
    if not (folder / "ca.key").is_file():
        raise BadParameter(
            f"{folder} holds no ca.key: replace server.crt yourself, or delete *.crt and server.key for new ones"
        )
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
    ca = _read_certificate(folder / "ca.crt")
    old = _read_certificate(folder / "server.crt")
    if ca.not_valid_after_utc < datetime.datetime.now(datetime.UTC):
        raise BadParameter(
            f"the authority in {folder / 'ca.crt'} has expired itself: delete *.crt and *.key there for a new one"
        )
    names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    _issue(folder, key, ca.subject, [str(n.value) for n in names], valid)
    return expiry(folder)


def expiry(folder: Path) -> datetime.datetime:
    """When the server's certificate in a link's folder expires."""
    return _read_certificate(folder / "server.crt").not_valid_after_utc


def expired(folder: Path | None) -> str:
    """A sentence if the server's certificate in a link's folder has expired; empty otherwise."""
    if folder is None or not (folder / "server.crt").is_file():
        return ""
    end = expiry(folder)
    if end > datetime.datetime.now(datetime.UTC):
        return ""
    remedy = f"`unpooled serve renew --link {folder}` makes a new one"
    return f"the server's certificate expired at {end:%Y-%m-%d %H:%M} UTC: {remedy}"


def _read_certificate(path: Path) -> x509.Certificate:
    """Read a certificate; BadParameter if the file is not one."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BadParameter(f"{path} is not a certificate: {error}") from error


def _issue(
    folder: Path, ca_key: ec.EllipticCurvePrivateKey, issuer: x509.Name, hosts: Sequence[str], valid: datetime.timedelta
) -> None:
    """Make a server certificate for `hosts` and write server.crt and server.key."""
    key = ec.generate_private_key(ec.SECP384R1())
    server = _certificate(_name(hosts[0]), issuer, key.public_key(), valid)
    server = server.add_extension(x509.SubjectAlternativeName([_san(h) for h in hosts]), critical=False)
    server = server.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    server = server.add_extension(_usage(sign=False), critical=True)
    own = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    server = server.add_extension(own, critical=False)
    content = server.sign(ca_key, hashes.SHA384()).public_bytes(serialization.Encoding.PEM)
    _write_secret(folder / "server.key", key)
    write_file(folder / "server.crt", content)


def _write_secret(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key in PEM format, readable by its owner alone."""
    form = serialization.PrivateFormat.PKCS8
    open_ = serialization.NoEncryption()
    write_file(path, key.private_bytes(serialization.Encoding.PEM, form, open_), secret=True)


def _name(text: str) -> x509.Name:
    """An X.509 name with this common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _certificate(subject: x509.Name, issuer: x509.Name, key, valid: datetime.timedelta) -> x509.CertificateBuilder:
    """A certificate builder, valid from yesterday until `valid` from now."""
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    end = start + datetime.timedelta(days=1) + valid
    return builder.serial_number(x509.random_serial_number()).not_valid_before(start).not_valid_after(end)


def _usage(sign: bool) -> x509.KeyUsage:
    """Key usage: of an authority, which signs certificates, or of a server."""
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=sign,
        crl_sign=sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _san(host: str) -> x509.GeneralName:
    """A host as an alternative name: an IP address or a DNS name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
