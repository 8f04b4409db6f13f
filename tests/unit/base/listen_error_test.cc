#include "k3pod/base/listen_error.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace k3pod {
namespace {

TEST(CannotListen, gives_each_reason_its_own_advice) {
    EXPECT_EQ(cannot_listen("127.0.0.1:8000", EADDRINUSE).to_string(),
              "unavailable: cannot listen on 127.0.0.1:8000: Address already in use; end the "
              "process that holds the address (perhaps an older k3pod) or choose another port in "
              "the pod file");
    EXPECT_EQ(cannot_listen("192.0.2.1:8000", EADDRNOTAVAIL).message(),
              "cannot listen on 192.0.2.1:8000: Cannot assign requested address; no interface of "
              "this machine has that address; write one that it has, such as 127.0.0.1, in the "
              "pod file");
    EXPECT_EQ(cannot_listen("127.0.0.1:80", EACCES).message(),
              "cannot listen on 127.0.0.1:80: Permission denied; ports below 1024 are for "
              "privileged processes; choose another port in the pod file");
    EXPECT_EQ(cannot_listen("[::1]:80", EAFNOSUPPORT).message(),
              "cannot listen on [::1]:80: Address family not supported by protocol; correct the "
              "address in the pod file");
    EXPECT_EQ(no_such_host("nohost:80", "Name or service not known").message(),
              "cannot listen on nohost:80: no such host (Name or service not known); write an "
              "address of this machine, such as 127.0.0.1, in the pod file");
}

}  // namespace
}  // namespace k3pod
