import sys, time, gc
sys.path.insert(0, "tests/simulation")
from simulation_plan import make_plan
from simulation_world import simulate
simulate(make_plan(1))
for calls in (40, 100):
    gc.disable()
    t=time.process_time(); n=0
    for s in range(300, 310):
        r=simulate(make_plan(s, calls)); n+=r.decisions
        if r.broken: print(s, r.broken)
        gc.collect()
    d=time.process_time()-t
    print(calls, n, round(n/d), "decisions per cpu s")
