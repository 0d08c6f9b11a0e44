/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proof that an end of a connection holds the unique id, without showing its token: a MAC over
 * a nonce of each end, so that neither can be answered with what was heard before. Called by the
 * link, on the loop.
 */
#include "daemon/world_private.h"

#include <nettle/hmac.h>
#include <nettle/memops.h>

void world_proof(const struct world_id *id, enum world_prover prover,
    const uint8_t root_nonce[WORLD_NONCE_SIZE], const uint8_t host_nonce[WORLD_NONCE_SIZE],
    uint8_t ret_mac[WORLD_MAC_SIZE])
{
    static const char labels[][24] = {
        [WORLD_PROVER_HOST] = "f8gather world 1: host",
        [WORLD_PROVER_ROOT] = "f8gather world 1: root",
    };
    uint8_t number[8];
    struct hmac_sha256_ctx hmac;
    for (size_t i = 0; i < sizeof(number); i++)
        number[i] = (uint8_t)(id->number >> (8 * i));
    hmac_sha256_set_key(&hmac, WORLD_TOKEN_SIZE, id->token);
    hmac_sha256_update(&hmac, sizeof(labels[prover]), (const uint8_t *)labels[prover]);
    hmac_sha256_update(&hmac, sizeof(number), number);
    hmac_sha256_update(&hmac, WORLD_NONCE_SIZE, root_nonce);
    hmac_sha256_update(&hmac, WORLD_NONCE_SIZE, host_nonce);
    hmac_sha256_digest(&hmac, WORLD_MAC_SIZE, ret_mac);
}

bool world_proof_equal(const uint8_t a[WORLD_MAC_SIZE], const uint8_t b[WORLD_MAC_SIZE])
{
    return memeql_sec(a, b, WORLD_MAC_SIZE) != 0;
}
