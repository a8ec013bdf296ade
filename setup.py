"""Builds the Python module against the torch that is installed: `pip install --no-build-isolation .`

It builds the libraries with CMake, in build/python, and takes them along. What they need of the system, scripts/setup installs.
"""
import pathlib
import shutil
import subprocess
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent


class BuildWithCMake(build_ext):
    def build_extension(self, ext):
        try:
            import torch
        except ImportError:
            raise SystemExit("athanor: torch is not there; install it, and then `pip install --no-build-isolation .`") from None
        folder = ROOT / "build" / "python"
        target = pathlib.Path(self.get_ext_fullpath(ext.name)).resolve()
        jobs = subprocess.run([ROOT / "scripts" / "jobs"], capture_output=True, text=True, check=True).stdout.strip()
        subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DATHANOR_TESTS=OFF",
                        f"-DATHANOR_LIBTORCH={pathlib.Path(torch.__file__).parent}", f"-DATHANOR_TORCH_VERSION={torch.__version__}",
                        f"-DATHANOR_PYTHON_INCLUDE={sysconfig.get_paths()['include']}"], check=True)
        subprocess.run(["cmake", "--build", folder, "-j", jobs, "--target", "athanor_python"], check=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / "_athanor.so", target)
        for library in folder.glob("libathanor*.so*"):
            (target.parent / library.name).unlink(missing_ok=True)  # a link is not written over
            shutil.copy(library, target.parent, follow_symlinks=False)


setup(packages=["athanor"], package_dir={"": "python"}, ext_modules=[Extension("athanor._athanor", sources=[])],
      cmdclass={"build_ext": BuildWithCMake})
