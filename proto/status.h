/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status codes of f8gather: one list of code, name and text that the daemon, the library,
 * f8ctl and the documentation are all made from. Codes are stable: they are on the wire and in
 * the ABI. New ones go to the end; a retired number is not given out again.
 */
#ifndef F8_STATUS_H
#define F8_STATUS_H

/* X(code, NAME, "text"): errors are returned as -F8_E..., which is what F8_E... already is. */
#define F8_STATUS_LIST(X)                                                                          \
    X(0, OK, "success")                                                                            \
    X(-1, EINVAL, "invalid argument")                                                              \
    X(-2, ENOMEM, "out of memory")                                                                 \
    X(-3, EPROTO, "protocol error")                                                                \
    X(-4, EVERSION, "protocol version not supported")                                              \
    X(-5, ECONN, "connection to the daemon lost")                                                  \
    X(-6, ENODAEMON, "no daemon answers at the socket")                                            \
    X(-7, EPERM, "not permitted")                                                                  \
    X(-8, ENOENT, "no such object")                                                                \
    X(-9, EEXIST, "already exists")                                                                \
    X(-10, EBUSY, "in use by an open request")                                                     \
    X(-11, EORDER, "called in the wrong order")                                                    \
    X(-12, EMISMATCH, "ranks disagree")                                                            \
    X(-13, EDEADLINE, "deadline passed")                                                           \
    X(-14, ERANKDEAD, "a rank died or left")                                                       \
    X(-15, EBROKEN, "the group is broken")                                                         \
    X(-16, ESTALE, "the view or generation has passed")                                            \
    X(-17, EREGION, "unusable memory region")                                                      \
    X(-18, ELIMIT, "a configured limit is reached")                                                \
    X(-19, EINTR, "interrupted by a signal")                                                       \
    X(-20, EFORKED, "called in a forked child")                                                    \
    X(-21, EUNKNOWN, "request not known to the daemon")                                            \
    X(-22, ECANCELED, "cancelled")                                                                 \
    X(-23, EIO, "input or output failed")                                                          \
    X(-24, EINTERNAL, "internal error")

enum f8_status {
#define F8_STATUS_ENUM(code, name, text) F8_##name = (code),
    F8_STATUS_LIST(F8_STATUS_ENUM)
#undef F8_STATUS_ENUM
};

#endif
