// What a child process tells the kernel about itself.
#pragma once

#include <cerrno>
#include <string>
#include <sys/prctl.h>
#include <system_error>
#include <unistd.h>

namespace penstock {

// Asks for a signal when the parent dies. False if the parent is gone already: then no signal will ever come.
inline bool set_parent_death_signal(int signum, pid_t expected_parent_pid) {
  if (prctl(PR_SET_PDEATHSIG, signum) != 0) {
    throw std::system_error(errno, std::generic_category(), "PR_SET_PDEATHSIG with signal " + std::to_string(signum));
  }
  return getppid() == expected_parent_pid;
}

}  // namespace penstock
