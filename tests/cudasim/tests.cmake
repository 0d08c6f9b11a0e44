# SPDX-License-Identifier: Apache-2.0
# The simulator's own tests: what must work, and what must be found.
