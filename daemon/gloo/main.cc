/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8gather-gloo: the helper that moves bytes between hosts for f8gatherd, which alone starts it:
 * see daemon/fabric.h. It does one command after the other and lives exactly as long as its daemon
 * wants; what goes wrong within Gloo's own thread ends it, and the daemon sees that.
 */
#include <csignal>
#include <cstdio>
#include <cstring>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine.h"
#include "failure.h"

namespace
{
bool answer(const Engine &engine, const Command &command, f8_status status, const std::string &why)
{
    fabric_answer answer = {};
    answer.command = command.ask.command;
    answer.status = status;
    answer.sent = engine.sent();
    answer.received = engine.received();
    if (status == F8_OK)
        return send_answer(answer, command.payload.data(), command.payload.size());
    constexpr size_t LONGEST = 500; /* of the daemon's reason */
    return send_answer(answer, why.data(), std::min(why.size(), LONGEST));
}

bool run(Engine &engine, Command &command)
{
    try {
        engine.run(command);
        return answer(engine, command, F8_OK, "");
    } catch (const Failure &failure) {
        return answer(engine, command, failure.status, failure.what());
    } catch (const std::bad_alloc &) {
        return answer(engine, command, F8_ENOMEM, "no memory for a command of the engine");
    } catch (const std::exception &error) {
        return answer(
            engine, command, F8_EIO, "the engine between the hosts failed: " + sentence(error));
    }
}

/* The daemon ends it: neither a broken connection does, nor a signal to all of a terminal's or a
 * service's processes, upon which the daemon may still have rounds to finish. */
void live_with_daemon()
{
    for (int number : {SIGPIPE, SIGINT, SIGTERM, SIGHUP})
        (void)signal(number, SIG_IGN);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    closefrom(FABRIC_SOCKET + 1);
}
} // namespace

int main()
{
    int type;
    socklen_t size = sizeof(type);
    if (getsockopt(FABRIC_SOCKET, SOL_SOCKET, SO_TYPE, &type, &size) < 0) {
        (void)fprintf(stderr, FABRIC_HELPER " is started by f8gatherd, not by hand\n");
        return 2;
    }
    live_with_daemon();
    Engine engine;
    Command command;
    while (receive_command(command) && run(engine, command))
        ;
    _exit(0); /* Gloo's thread may be at work */
}
