#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "commands.h"

namespace {

// The number of a closed standard descriptor would go to the next file or socket, and that would
// get the lines meant for a terminal. What stands in can only be read, so that a report that
// reaches nobody is still a failure. System calls, because nothing is set up yet, a sanitizer
// neither.
void fill_closed_descriptors() {
    long fd = -1;
    do {
        fd = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO) syscall(SYS_close, fd);
}

// Before the constructors of shared libraries, of which UCX's open descriptors.
__attribute__((section(".preinit_array"),
               used)) void (*const kBeforeLibraries)() = fill_closed_descriptors;

}  // namespace

int main(int argc, char** argv) {
    std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is an error of write() with a sentence
    const int exit = k3pod::run_command(argc, argv);
    if (exit != 0) return exit;
    // Half a report, as on a full disk, must not pass for a whole one.
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
    std::fputs(
        "k3pod: cannot write all of the output: is the disk full, or standard output closed?\n",
        stderr);
    return 1;
}
