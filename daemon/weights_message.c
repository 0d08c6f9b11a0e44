/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights in messages: as clients register them, and as hosts tell one another what was registered.
 * Called by session and collective on the loop.
 */
#include <string.h>

#include "daemon/weights.h"
#include "f8gather.pb-c.h"

int weight_from_message(const F8__Weight *message, struct weight *ret_weight, struct reason *reason)
{
    if (message->n_shape < 1 || message->n_shape > F8_PROTO_MAX_DIMS)
        return reason_set(reason, F8_EINVAL,
            "weight %.255s has %zu dimensions, allowed are 1 to %d", message->name,
            message->n_shape, F8_PROTO_MAX_DIMS);
    if (message->dtype > UINT8_MAX || message->flavour > UINT8_MAX || message->format > UINT8_MAX)
        return reason_set(reason, F8_EINVAL,
            "weight %.255s has dtype %u, flavour %u, format %u: no such values", message->name,
            message->dtype, message->flavour, message->format);
    if (message->history_length > F8_PROTO_MAX_HISTORY_LENGTH ||
        message->history_algorithm > UINT8_MAX)
        return reason_set(reason, F8_EINVAL,
            "weight %.255s has an amax history of %u by algorithm %u: at most %d are possible",
            message->name, message->history_length, message->history_algorithm,
            F8_PROTO_MAX_HISTORY_LENGTH);
    *ret_weight = (struct weight){
        .ndim = (uint32_t)message->n_shape,
        .dtype = (uint8_t)message->dtype,
        .flavour = (uint8_t)message->flavour,
        .format = (uint8_t)message->format,
        .power_of_two = message->power_of_two,
        .static_bits = message->static_scale,
        .history_length = (uint16_t)message->history_length,
        .history_algorithm = (uint8_t)message->history_algorithm,
    };
    memcpy(ret_weight->shape, message->shape, message->n_shape * sizeof(message->shape[0]));
    return F8_OK;
}

void weight_to_message(const struct weight *weight, F8__Weight *ret_message)
{
    f8__weight__init(ret_message);
    ret_message->name = (char *)(uintptr_t)weight->name;
    ret_message->shape = (uint64_t *)(uintptr_t)weight->shape;
    ret_message->n_shape = weight->ndim;
    ret_message->dtype = weight->dtype;
    ret_message->flavour = weight->flavour;
    ret_message->format = weight->format;
    ret_message->power_of_two = weight->power_of_two;
    ret_message->static_scale = weight->static_bits;
    ret_message->history_length = weight->history_length;
    ret_message->history_algorithm = weight->history_algorithm;
}
