#include "commands.h"

int main(int argc, char** argv) {
    return k3pod::run_command(argc, argv);
}
