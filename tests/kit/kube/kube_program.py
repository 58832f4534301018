"""The stand-in API server as a program with kube-apiserver's flags."""

import argparse
import asyncio
import ssl
from pathlib import Path

from kube_api import ApiServer


async def serve(port: int, tls: ssl.SSLContext, tokens: list[str]) -> None:
    server = ApiServer()
    server.port, server.tls = port, tls
    server.users = {token: (token, None) for token in tokens}
    async with server.listening():
        await asyncio.Event().wait()


def main() -> None:
    flags = argparse.ArgumentParser()
    flags.add_argument("--secure-port", type=int)
    flags.add_argument("--tls-cert-file")
    flags.add_argument("--tls-private-key-file")
    flags.add_argument("--token-auth-file", type=Path)
    args, _ = flags.parse_known_args()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(args.tls_cert_file, args.tls_private_key_file)
    lines = args.token_auth_file.read_text().splitlines()
    asyncio.run(serve(args.secure_port, tls, [line.partition(",")[0] for line in lines]))


if __name__ == "__main__":
    main()
