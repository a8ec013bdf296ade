#include "launch/other_schedulers.h"

#include <filesystem>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"

namespace athanor::launch {
namespace {

struct OtherJob {
  const char *system, *sign;  // a variable that only its jobs have
  const char* num_nodes;      // a variable with the number of nodes; "": there is none
  bool is_host_file;          // the sign names a file with a line for each host, or for each slot
  const char* remedy;
};
constexpr OtherJob kOtherJobs[] = {
    {"Flux", "FLUX_JOB_ID", "FLUX_JOB_NNODES", false,
     "write them with `flux hostlist --expand | tr ' ' '\\n' >hosts`, and give --hostfile hosts"},
    {"Flux", "FLUX_URI", "", false,
     "write them with `flux hostlist --expand | tr ' ' '\\n' >hosts`, and give --hostfile hosts"},
    {"Grid Engine", "PE_HOSTFILE", "", true,
     "write them with `awk '{print $1}' $PE_HOSTFILE >hosts`, and give --hostfile hosts"},
    {"Cobalt", "COBALT_NODEFILE", "", true, "give --hostfile $COBALT_NODEFILE"},
    {"OAR", "OAR_NODEFILE", "", true, "write them with `sort -u $OAR_NODEFILE >hosts`, and give --hostfile hosts"},
    {"LoadLeveler", "LOADL_HOSTFILE", "", true,
     "write them with `sort -u $LOADL_HOSTFILE >hosts`, and give --hostfile hosts"},
    {"the MPI operator of Kubernetes", "OMPI_MCA_orte_default_hostfile", "", true,
     "give --hostfile $OMPI_MCA_orte_default_hostfile"},
    {"the MPI operator of Kubernetes", "I_MPI_HYDRA_HOST_FILE", "", true, "give --hostfile $I_MPI_HYDRA_HOST_FILE"},
    {"the MPI operator of Kubernetes", "HYDRA_HOST_FILE", "", true, "give --hostfile $HYDRA_HOST_FILE"},
    {"Fujitsu's scheduler", "PJM_JOBID", "PJM_NODE", false, "write them into a file, and give --hostfile FILE"},
    {"HTCondor", "_CONDOR_NPROCS", "_CONDOR_NPROCS", false, "write them into a file, and give --hostfile FILE"},
    {"AWS Batch", "AWS_BATCH_JOB_NUM_NODES", "AWS_BATCH_JOB_NUM_NODES", false,
     "write the addresses of its nodes into a file, and give --hostfile FILE"},
    {"Kubeflow", "PET_NNODES", "PET_NNODES", false,
     "take an MPIJob, whose launcher has them in /etc/mpi/hostfile, and give --hostfile /etc/mpi/hostfile"},
};

// Hosts of a file, by the first word of each line; 0 if it cannot be read.
size_t num_hosts_in(const std::string& file) {
  std::set<std::string> names;
  try {
    std::istringstream lines(read_file(file));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string name;
      if (words >> name && !name.starts_with('#')) names.insert(name);
    }
  } catch (const Error&) {
    return 0;
  }
  return names.size();
}

// "2", "2:4" (at least two) or nothing, if the number is not told.
std::string num_nodes_of(const OtherJob& job, const std::string& sign, const Surroundings& here) {
  if (job.is_host_file) {
    const size_t number = num_hosts_in(sign);
    return number > 0 ? std::to_string(number) : "";
  }
  return *job.num_nodes ? here.variable(job.num_nodes).value_or("") : "";
}

}  // namespace

void refuse_other_job(const Surroundings& here) {
  for (const OtherJob& job : kOtherJobs) {
    const auto sign = here.variable(job.sign);
    if (!sign) continue;
    const std::string number = num_nodes_of(job, *sign, here);
    if (number == "1") return;
    fail<ConfigError>(
        "{} is {}: this is a job of {} with {}, whose list of hosts is not read here; {}, or take --scheduler local "
        "for "
        "this machine alone",
        job.sign, printable(sign->substr(0, 80)), job.system,
        number.empty() ? "an unknown number of nodes" : printable(number.substr(0, 20)) + " nodes", job.remedy);
  }
}

}  // namespace athanor::launch
