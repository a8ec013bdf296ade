#pragma once
// Jobs of systems whose lists of hosts `athanor launch` does not read: one host would be taken for all of them.
//
// Sources: the manuals of Flux (flux-environment), Grid Engine (sge_pe), Cobalt, OAR, LoadLeveler, Fujitsu's job
// operation software (pjsub), HTCondor (parallel universe), AWS Batch, Kubeflow's training operator and the MPI
// operator of Kubernetes.

#include "launch/surroundings.h"

namespace athanor::launch {

/// Refuses a start on this machine alone if the environment names a job of such a system, unless it also tells that the
/// job has one node. @throws ConfigError with what to give instead.
void refuse_other_job(const Surroundings& here);

}  // namespace athanor::launch
