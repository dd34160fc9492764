#!/bin/sh
# claims: prints the living claims on this machine.
. ./claims_function.sh
claims
