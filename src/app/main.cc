#include <cstdio>

#include "commands.h"

int main(int argc, char** argv) {
    const int exit = k3pod::run_command(argc, argv);
    if (exit != 0) return exit;
    // Half a report, as on a full disk, must not pass for a whole one.
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
    std::fputs(
        "k3pod: cannot write all of the output: is the disk full, or standard output closed?\n",
        stderr);
    return 1;
}
