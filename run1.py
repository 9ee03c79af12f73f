import sys, time
sys.path.insert(0, "tests/simulation")
from simulation_plan import make_plan
from simulation_world import simulate
a,b=int(sys.argv[1]),int(sys.argv[2])
t=time.perf_counter(); n=0; bad=0
for s in range(a,b):
    r=simulate(make_plan(s), readable=len(sys.argv)>3)
    n+=r.decisions
    if r.broken:
        bad+=1
        print(s, r.broken, [str(f) for f in r.plan.faults][:6], flush=True)
        if len(sys.argv)>3: print("\n".join([*r.plan.describe(), *r.lines[-60:]]))
d=time.perf_counter()-t
print(n, "decisions", round(n/d), "/s", bad, "bad of", b-a)
