"""Keys and certificates: a node's key pair (P-384, as Flower wants it), and a small certificate authority of the coordinator's own."""

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

YEAR = datetime.timedelta(days=365)


def make_node_key(path: Path) -> Path:
    """Write a private key that only its owner can read, and beside it the public key to be admitted; gives the latter's path."""
    public = path.with_suffix(".pub")
    if path.exists():
        raise BadParameter(f"{path} is there already: a node keeps its key, delete it first to make a new one")
    key = ec.generate_private_key(ec.SECP384R1())
    _write_private(path, key)
    encoding, form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    public.write_bytes(key.public_key().public_bytes(encoding, form) + b"\n")
    return public


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(content)


def read_node_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    except FileNotFoundError as error:
        raise DataNotFound(f"{path} is not there: make it with `unpooled node keygen {path}`") from error
    except ValueError as error:
        raise BadParameter(
            f"{path} is no private key without a password: make one with `unpooled node keygen`"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadParameter(f"{path} holds a key of another kind: make one with `unpooled node keygen`")
    return key


def read_public_key(path: Path) -> ec.EllipticCurvePublicKey:
    try:
        key = serialization.load_ssh_public_key(path.read_bytes())
    except FileNotFoundError as error:
        raise DataNotFound(f"{path} is not there: a node makes it with `unpooled node keygen`") from error
    except ValueError as error:
        raise BadParameter(f"{path} is no public key: send the .pub file that `unpooled node keygen` made") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise BadParameter(
            f"{path} holds a key of another kind: a node makes the right one with `unpooled node keygen`"
        )
    return key


def make_authority(folder: Path, hosts: Sequence[str], valid: datetime.timedelta = YEAR) -> None:
    """ca.crt (for the nodes), server.crt and server.key in `folder`; the CA's own key is used once and not kept."""
    folder.mkdir(parents=True, exist_ok=True)
    ca_key, server_key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    ca_name = _name("unpooled link")
    ca = _certificate(ca_name, ca_name, ca_key.public_key(), valid)
    ca = ca.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    ca = ca.add_extension(_usage(sign=True), critical=True)
    server = _certificate(_name(hosts[0]), ca_name, server_key.public_key(), valid)
    server = server.add_extension(x509.SubjectAlternativeName([_san(h) for h in hosts]), critical=False)
    server = server.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    server = server.add_extension(_usage(sign=False), critical=True)
    own = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    server = server.add_extension(own, critical=False)
    ca = ca.add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
    pem = serialization.Encoding.PEM
    (folder / "ca.crt").write_bytes(ca.sign(ca_key, hashes.SHA384()).public_bytes(pem))
    (folder / "server.crt").write_bytes(server.sign(ca_key, hashes.SHA384()).public_bytes(pem))
    content = server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with os.fdopen(os.open(folder / "server.key", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(content)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _certificate(subject: x509.Name, issuer: x509.Name, key, valid: datetime.timedelta) -> x509.CertificateBuilder:
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    end = start + datetime.timedelta(days=1) + valid
    return builder.serial_number(x509.random_serial_number()).not_valid_before(start).not_valid_after(end)


def _usage(sign: bool) -> x509.KeyUsage:
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
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
