/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clients ask about groups over several hosts, before there is a group: see session.h.
 */
#include <stdlib.h>

#include "daemon/session_private.h"
#include "daemon/world.h"

int session_unique_id(
    struct session *session, const struct incoming *incoming, struct answer *answer)
{
    (void)incoming;
    uint8_t *id = malloc(F8_PROTO_UNIQUE_ID_SIZE);
    if (!id)
        return reason_set(&answer->reason, F8_ENOMEM, "out of memory for a unique id");
    answer->scratch = id;
    int status = world_unique_id(session->context->collective.worlds, id, &answer->reason);
    if (status < 0)
        return status;
    F8__UniqueIdReply *reply = &answer->body.unique_id;
    f8__unique_id_reply__init(reply);
    reply->unique_id = (ProtobufCBinaryData){.data = id, .len = F8_PROTO_UNIQUE_ID_SIZE};
    answer->reply.body_case = F8__REPLY__BODY_UNIQUE_ID;
    answer->reply.unique_id = reply;
    return F8_OK;
}
