"""Makes a bucket and users at a server of moto, which the first calls need no signature for.

    .s3/bin/python tests/kit/process/s3_users.py ENDPOINT BUCKET CA NAME=POLICY...

Prints the keys of the users as JSON. It runs in the environment of the server.
"""

import json
import sys
from importlib import import_module
from typing import Any

aws = import_module("boto3")


def client(service: str, endpoint: str, ca: str) -> Any:
    return aws.client(
        service,
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="nobody",
        aws_secret_access_key="-",
        verify=ca or None,
    )


def made(iam: Any, name: str, policy: str) -> tuple[str, str]:
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName=name, PolicyDocument=policy)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return key["AccessKeyId"], key["SecretAccessKey"]


if __name__ == "__main__":
    endpoint, bucket, ca, *users = sys.argv[1:]
    client("s3", endpoint, ca).create_bucket(Bucket=bucket)
    iam = client("iam", endpoint, ca)
    print(
        json.dumps(
            {
                name: made(iam, name, policy)
                for name, _, policy in (user.partition("=") for user in users)
            }
        )
    )
