#!/bin/sh
# claims: the claims that live on this machine.
. ./claims_function.sh
claims
