/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long tests wait for what must come, before they say what did not. Less than the limits that
 * Check and ctest keep, which say nothing.
 */
#ifndef F8_TESTS_PATIENCE_H
#define F8_TESTS_PATIENCE_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PATIENCE_S 300
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PATIENCE_S 300 /* a program may take seconds to start alone; Check keeps no limit here */
#endif

#ifndef PATIENCE_S
#define PATIENCE_S 60
#endif

#define PATIENCE_MS (PATIENCE_S * 1000)

#endif
